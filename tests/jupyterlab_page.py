"""A real JupyterLab with a notebook in it, in a headless Chromium."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.webdriver.support.ui import WebDriverWait

TOKEN = "a-token-for-this-test"
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--window-size=1280,1600",
)
RUN = """const done = arguments[0], app = window.jupyterapp;
const panel = app.shell.currentWidget;
panel.context.ready.then(() => panel.sessionContext.ready).then(() =>
  app.commands.execute('notebook:run-all-cells')).then(() =>
  done(JSON.stringify(panel.content.model.toJSON())), (error) => done(String(error)));"""


def tour(
    notebook: Path,
    folder: Path,
    env: dict[str, str],
    look: Callable[[Any], None] = lambda driver: None,
) -> tuple[str, list[str]]:
    """Run all cells of a notebook in JupyterLab; return what they put out, and complaints.

    `look` is called with the driver afterwards.
    """
    shutil.copy(notebook, folder)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    own = {
        k: str(folder / k.lower())
        for k in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR")
    }
    server = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "jupyterlab",
            "--no-browser",
            "--allow-root",
            f"--port={port}",
            "--ip=127.0.0.1",
            f"--IdentityProvider.token={TOKEN}",
            f"--ServerApp.root_dir={folder}",
            "--expose-app-in-browser",
            "--LabApp.news_url=",
            "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
        ],
        env={**os.environ, **own, **env},
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or shutil.which("chromium-browser") or ""
    for flag in (*FLAGS, f"--user-data-dir={folder / 'browser'}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "SEVERE"})
    driver = webdriver.Chrome(
        options=options, service=webdriver.ChromeService(shutil.which("chromedriver"))
    )
    try:
        WebDriverWait(server, 60, 0.3).until(lambda _: _answers(port))
        driver.set_script_timeout(180)
        driver.get(f"http://127.0.0.1:{port}/lab/tree/{notebook.name}?token={TOKEN}")
        WebDriverWait(driver, 60, 0.3).until(
            lambda d: d.execute_script(
                "return window.jupyterapp?.shell.currentWidget?.content?.model?.cells?.length"
            )
        )
        said = json.loads(driver.execute_async_script(RUN))
        look(driver)
        text = "\n".join(json.dumps(cell.get("outputs", ())) for cell in said["cells"])
        complaints = [e["message"] for e in driver.get_log("browser") if "nkisim" in e["message"]]
        return text, complaints
    finally:
        driver.quit()
        server.terminate()
        server.wait(30)


def _answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api?token={TOKEN}", timeout=2):
            return True
    except OSError:
        return False
