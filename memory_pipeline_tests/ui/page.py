"""A headless browser that finds elements by their text.

The UI's class names change with each release, and its builds have no test ids.
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

#: Seconds to wait for an element. Pages take two on an idle machine.
_PATIENCE = 60
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-proxy-server",
    "--window-size=1600,1300",
)  # fmt: skip
#: Errors while a page renders again. The next attempt finds the new element.
_REDRAWN = (StaleElementReferenceException, ElementClickInterceptedException, ElementNotInteractableException)


def missing_programs() -> list[str]:
    """Return the required programs that are not installed."""
    return [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]


class Page:
    """A browser window on the UI.

    Args:
        driver: the webdriver.
        address: address of the UI.
        pictures: folder for screenshots.
    """

    def __init__(self, driver: webdriver.Chrome, address: str, pictures: Path) -> None:
        self.driver = driver
        self._address = address
        self._pictures = pictures

    def open(self, path: str) -> None:
        """Open a page and wait for Dagster's navigation."""
        self.driver.get(f"{self._address}{path}")
        self.see("Deployment")

    def picture(self, name: str) -> None:
        """Take a screenshot once everything is rendered."""
        self.until(lambda: not self.shows("Loading"), "everything is loaded")
        self.keep(name)

    def keep(self, name: str) -> None:
        self.driver.save_screenshot(str(self._pictures / f"{name}.png"))

    def find(self, path: str) -> list[WebElement]:
        """Return the current elements of an XPath."""
        return self.driver.find_elements(By.XPATH, path)

    def shows(self, text: str) -> bool:
        """Return whether an element's own text contains `text` now."""
        return bool(self.find(_with_text(text)))

    def see(self, *texts: str, seconds: float = _PATIENCE) -> None:
        """Wait until the page shows all texts."""
        for text in texts:
            self.until(lambda text=text: self.shows(text), f"the page shows {text!r}", seconds)  # type: ignore[misc]

    def click(self, path: str) -> None:
        """Click the last element of an XPath once it can be clicked."""

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
        self.click(_with_text(text))

    def fill(self, path: str, text: str) -> None:
        """Replace the text of a field and press enter."""

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
        """Scroll the element with a text to the top."""
        self.see(text)
        self.driver.execute_script("arguments[0].scrollIntoView(true)", self.find(_with_text(text))[0])

    def until(self, holds: Callable[[], bool], what: str, seconds: float = _PATIENCE) -> None:
        """Wait until a condition holds. Raise with `what` after the timeout."""
        WebDriverWait(self.driver, seconds, 0.2).until(lambda _: holds(), f"waited in vain, until {what}")


@contextmanager
def opened_page(address: str, profile: Path, pictures: Path) -> Iterator[Page]:
    """Open a browser with a new profile. Take a screenshot of a failure, and close it with all its processes."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for flag in (*_FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    # With both paths given, Selenium searches and downloads nothing.
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
