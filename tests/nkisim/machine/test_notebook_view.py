"""A profile in a notebook is its page, in a frame that works without the notebook's rights."""

from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
import numpy as np
import pytest

import nkisim
from nkisim.report import html


@nki.jit
def add(a, b):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.add(nl.load(a), nl.load(b)))
    return out


X = np.zeros((128, 64), np.float32)


def test_the_frame_shows_the_page(tmp_path):
    from test_viewer_browser import CHROMIUM, DRIVER, FLAGS

    if not (CHROMIUM and DRIVER):
        pytest.skip("no Chromium with a chromedriver is installed")
    from selenium import webdriver
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import WebDriverWait

    cell = tmp_path / "cell.html"
    shown = nkisim.profile(add, X, X)._repr_html_()
    cell.write_text(f"<!doctype html><title>cell</title><p>Out[1]:</p>{shown}", "utf-8")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={tmp_path / 'user'}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    try:
        driver.get(cell.as_uri())
        driver.switch_to.frame(0)
        WebDriverWait(driver, 60).until(
            lambda d: "predicted" in d.find_element(By.TAG_NAME, "body").text
        )
        assert driver.find_elements(By.TAG_NAME, "canvas")
        assert "add" in driver.find_element(By.TAG_NAME, "body").text
        driver.save_screenshot(str(tmp_path / "cell.png"))
        assert [entry for entry in driver.get_log("browser") if entry["level"] == "SEVERE"] == []
    finally:
        driver.quit()


def test_a_large_page_gives_way_to_the_summary(monkeypatch):
    monkeypatch.setattr(html, "LARGEST_INLINE", 1000)
    shown = nkisim.profile(add, X, X)._repr_html_()
    assert "<iframe" not in shown and "predicted" in shown and "save_html" in shown
