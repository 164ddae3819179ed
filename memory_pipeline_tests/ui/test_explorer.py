"""The explorer in a real browser: every page, without violations of accessibility, in dark, on a phone and at 400 %."""

from __future__ import annotations

import os
import shutil
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import uvicorn
from axe_core_python.selenium import Axe  # type: ignore[import-untyped]  # it ships no types
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from memory_pipeline.explorer.app import Explorer
from memory_pipeline.lake import Lake
from memory_pipeline_tests.explorer.making import LATER, make_lake
from memory_pipeline_tests.service.running import free_port
from memory_pipeline_tests.ui.page import missing_programs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memory_pipeline_tests.conftest import SharedFolder

OF_ANNA = "workspace=acme&agent=support&user=anna"
PAGES = {
    "home": "/?query=hazelnuts",
    "years": f"/calendar?{OF_ANNA}",
    "calendar": f"/calendar?{OF_ANNA}&grain=monthly&period=2026-03",
    "day": f"/calendar?{OF_ANNA}&grain=daily&period=2026-03-09",
    "search": f"/search?{OF_ANNA}&query=Where+do+I+live%3F",
    "graph": f"/graph?{OF_ANNA}&name=User",
    "memories": f"/memories?{OF_ANNA}",
    "conversations": f"/conversations?{OF_ANNA}",
    "conversation": f"/conversation?{OF_ANNA}&id=talk+2+%3Cb%3E",
    "quality": "/quality?checks=1",
    "problem": f"/memory?{OF_ANNA}&id=x",
}

#: A desktop in light and dark, a phone, and 1280 by 1024 pixels at 400 %.
SIZES = ((1200, 1000, "light"), (1200, 1000, "dark"), (360, 740, "light"), (320, 256, "dark"))

pytestmark = [
    pytest.mark.slow_environment,
    pytest.mark.skipif(bool(missing_programs()), reason=f"{' and '.join(missing_programs())} not found"),
]


@pytest.fixture(scope="module")
def address(shared_folder: SharedFolder) -> Iterator[str]:
    lake = Lake(str(shared_folder("explorer", make_lake)))
    port = free_port()
    server = uvicorn.Server(uvicorn.Config(Explorer(lake, now=lambda: LATER).app(), port=port, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.02)
    yield f"http://localhost:{port}"
    server.should_exit = True
    thread.join()


@pytest.fixture(scope="module")
def browser() -> Iterator[webdriver.Chrome]:
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for flag in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--window-size=1200,1000",
    ):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    yield driver
    driver.quit()


def scheme(browser: webdriver.Chrome, name: str) -> None:
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": name}]}
    )


@pytest.mark.parametrize("name", PAGES)
def test_a_page_has_no_violations_and_fits(browser: webdriver.Chrome, address: str, name: str) -> None:
    pictures = Path(os.environ.get("MEMORY_PIPELINE_ARTEFACTS", "artefacts")) / "explorer"
    pictures.mkdir(parents=True, exist_ok=True)
    for width, height, colours in (
        (1200, 1000, "light"),
        (1200, 1000, "dark"),
        (360, 740, "light"),
        (320, 256, "dark"),
    ):
        browser.set_window_size(width, height)
        browser.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 400},
        )
        scheme(browser, colours)
        began = time.monotonic()
        browser.get(f"{address}{PAGES[name]}")
        assert time.monotonic() - began < 20
        found: dict[str, Any] = Axe().run(browser)
        problems = [f"{one['id']}: {one['nodes'][0]['html']}" for one in found["violations"]]
        assert problems == []
        # Nothing but tables and drawings scrolls sideways.
        wide = browser.execute_script("return document.documentElement.scrollWidth")
        assert wide <= width
        if width == 1200:
            browser.save_screenshot(str(pictures / f"{name}-{colours}.png"))
    errors = [one["message"] for one in browser.get_log("browser")]  # type: ignore[no-untyped-call]  # as above
    assert [one for one in errors if "favicon" not in one and "400" not in one] == []


def test_a_keyboard_is_enough(browser: webdriver.Chrome, address: str) -> None:
    browser.get(f"{address}/")
    browser.find_element(By.TAG_NAME, "body").send_keys(Keys.TAB)
    assert browser.switch_to.active_element.text == "Skip to the content"
    browser.find_element(By.NAME, "query").send_keys("hazelnuts", Keys.ENTER)
    link = browser.find_element(By.PARTIAL_LINK_TEXT, "allergic to hazelnuts")
    link.send_keys(Keys.ENTER)
    assert "Sources" in browser.title
