"""A browser without a screen, that looks for what is written, as people do.

The UI's class names change with each release and its builds have no test ids, so elements are found by their text.
"""

from __future__ import annotations

import os
import shutil
import signal
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from selenium import webdriver
from selenium.common.exceptions import (
    ElementClickInterceptedException,
    ElementNotInteractableException,
    StaleElementReferenceException,
)
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from selenium.webdriver.remote.webelement import WebElement

#: Seconds until what is looked for must be there; pages take two on an idle machine.
_PATIENCE = 60
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-proxy-server",
    "--window-size=1600,1300",
)  # fmt: skip
#: What happens while a page draws itself anew; the next attempt finds the new element.
_REDRAWN = (StaleElementReferenceException, ElementClickInterceptedException, ElementNotInteractableException)


def missing_programs() -> list[str]:
    """Return the programs that are needed and not installed."""
    return [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]


class Page:
    """A window of the browser on the UI.

    Args:
        driver: the browser.
        address: of the UI.
        pictures: folder for what it looked like.
    """

    def __init__(self, driver: webdriver.Chrome, address: str, pictures: Path) -> None:
        self.driver = driver
        self._address = address
        self._pictures = pictures

    def open(self, path: str) -> None:
        """Go to a page, and wait until it shows Dagster's navigation."""
        self.driver.get(f"{self._address}{path}")
        self.see("Deployment")

    def picture(self, name: str) -> None:
        """Keep what the window shows, once it shows all."""
        self.until(lambda: not self.shows("Loading"), "everything is loaded")
        self.keep(name)

    def keep(self, name: str) -> None:
        """Keep what the window shows at this moment."""
        self.driver.save_screenshot(str(self._pictures / f"{name}.png"))

    def find(self, path: str) -> list[WebElement]:
        """Return the elements that an XPath finds now."""
        return self.driver.find_elements(By.XPATH, path)

    def shows(self, text: str) -> bool:
        """Tell whether some element's own text holds `text` now."""
        return bool(self.find(_with_text(text)))

    def see(self, *texts: str, seconds: float = _PATIENCE) -> None:
        """Wait until each of the texts stands on the page."""
        for text in texts:
            self.until(lambda text=text: self.shows(text), f"the page shows {text!r}", seconds)  # type: ignore[misc]

    def click(self, path: str) -> None:
        """Click on the last element that an XPath finds, once it is there and can be clicked."""

        def clicked() -> bool:
            try:
                shown = [element for element in self.find(path) if element.is_displayed() and element.is_enabled()]
                if shown:
                    shown[-1].click()
            except _REDRAWN:
                return False
            return bool(shown)

        self.until(clicked, f"{path} can be clicked")

    def click_text(self, text: str) -> None:
        """Click on the last element whose own text holds `text`."""
        self.click(_with_text(text))

    def fill(self, path: str, text: str) -> None:
        """Replace what stands in a field, and press enter."""

        def filled() -> bool:
            try:
                field = self.find(path)[0]
                field.click()
                field.send_keys(Keys.CONTROL, "a")
                field.send_keys(text, Keys.ENTER)
                return True
            except (IndexError, *_REDRAWN):
                return False

        self.until(filled, f"{path} can be filled")

    def scroll_to(self, text: str) -> None:
        """Bring the element with a text to the top."""
        self.see(text)
        self.driver.execute_script("arguments[0].scrollIntoView(true)", self.find(_with_text(text))[0])

    def until(self, holds: Callable[[], bool], what: str, seconds: float = _PATIENCE) -> None:
        """Wait until something holds; say `what` if it does not come to that."""
        WebDriverWait(self.driver, seconds, 0.2).until(lambda _: holds(), f"waited in vain, until {what}")


@contextmanager
def opened_page(address: str, profile: Path, pictures: Path) -> Iterator[Page]:
    """Open a browser with a new profile; close it with all of its processes, and picture what failed."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for flag in (*_FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    # With both paths given, nothing is looked for or downloaded.
    service = Service(executable_path=shutil.which("chromedriver"), popen_kw={"start_new_session": True})
    driver = webdriver.Chrome(options=options, service=service)
    group = service.process.pid
    page = Page(driver, address, pictures)
    try:
        yield page
    except BaseException:
        page.keep("failure")
        raise
    finally:
        with suppress(Exception):
            driver.quit()
        with suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)


def _with_text(text: str) -> str:
    return f"//*[text()[contains(., {_quoted(text)})]]"


def _quoted(text: str) -> str:
    assert not ('"' in text and "'" in text), "XPath knows no escapes"
    return f"'{text}'" if '"' in text else f'"{text}"'
