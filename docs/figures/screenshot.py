"""Take the README's picture of a profile page: `python -m docs.figures.screenshot`.

Needs Chromium with its driver and Selenium (the extra `test`). Each Chromium draws text a little
differently, so the picture is no figure that a test compares byte by byte.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.support.ui import WebDriverWait

ROOT = Path(__file__).resolve().parents[2]
#: what the picture shows: a kernel that students are given, and that the page has advice for
COMMAND = (
    "profile labs/ffnn/kernels_nki.py:nki_matmul_tiled --arg 512x512:bfloat16 "
    "--arg 512x1024:bfloat16 --target trn2 --html"
)
WIDTH, HEIGHT = 1280, 865  # pixels: down to the end of the timeline
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars")


def main() -> int:
    """Write docs/figures/page.png."""
    from nkisim.cli.main import main as nkisim

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or shutil.which("google-chrome") or ""
    for flag in FLAGS:
        options.add_argument(flag)
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder, "page.html")
        if code := nkisim([*COMMAND.split(), str(page)]):
            return code
        service = webdriver.ChromeService(shutil.which("chromedriver"))
        driver = webdriver.Chrome(options=options, service=service)
        size = {"width": WIDTH, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": False}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        driver.get(page.as_uri())
        WebDriverWait(driver, 60).until(
            lambda d: d.execute_script("return !!window.nkisim && document.readyState")
        )
        driver.execute_async_script("requestAnimationFrame(() => setTimeout(arguments[0], 500))")
        driver.save_screenshot(str(Path(__file__).with_name("page.png")))
        driver.quit()
    return 0


if __name__ == "__main__":
    sys.exit(main())
