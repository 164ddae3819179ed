"""Write ``docs/images``: pages of the explorer on the demo's lake, in a headless browser (Debian's chromium)."""

from __future__ import annotations

import tempfile
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

import uvicorn
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By

from memory_pipeline.demo import show_demo
from memory_pipeline.explorer.app import Explorer
from memory_pipeline.lake import Lake
from memory_pipeline.settings import Settings

IMAGES = Path(__file__).with_name("images")
BAKERY = "workspace=harbour-bakery&agent=juniper"
PAGES = {
    "calendar": f"/calendar?{BAKERY}&grain=monthly&period=2025-03",
    "search": f"/search?{BAKERY}&query=When+do+we+open%3F",
    "graph": f"/graph?{BAKERY}",
    "memories": f"/memories?{BAKERY}",
    "conversation": f"/conversation?{BAKERY}&id=2025-12-22-year",
}
PORT = 8767


def main() -> None:
    """Take a picture of each page."""
    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for flag in ("headless=new", "no-sandbox", "disable-gpu", "window-size=1100,820", "hide-scrollbars"):
        options.add_argument(f"--{flag}")
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        show_demo(Settings(root=f"{folder}/demo-lake"), as_json=True)
        app = Explorer(Lake(f"{folder}/demo-lake"), now=lambda: datetime(2026, 1, 5, tzinfo=UTC)).app()
        server = uvicorn.Server(uvicorn.Config(app, port=PORT, log_level="error"))
        threading.Thread(target=server.run, daemon=True).start()
        while not server.started:
            time.sleep(0.05)
        driver = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
        for name, path in PAGES.items():
            driver.get(f"http://localhost:{PORT}{path}")
            if name == "search":
                driver.find_element(By.TAG_NAME, "summary").click()
            driver.execute_script("document.querySelector('.brand .quiet').textContent = './demo-lake'")
            driver.save_screenshot(str(IMAGES / f"{name}.png"))
        driver.quit()


if __name__ == "__main__":
    main()
