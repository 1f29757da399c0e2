"""A headless Chromium with a profile of its own."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from selenium.common.exceptions import WebDriverException
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.wait import WebDriverWait

from tests.console.running import Visitor

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
ARGUMENTS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--force-device-scale-factor=1",
)
WAIT_S = 30
WIDE, PHONE = (1280, 900), (390, 844)
AXE_PACKAGE = "axe-core@4.14.1"


@contextmanager
def chromium(*, dark: bool = False, waits: bool = True) -> Iterator[Chrome]:
    """`waits`: for the end of a page."""
    options = ChromeOptions()
    options.page_load_strategy = "normal" if waits else "none"
    options.binary_location = CHROMIUM or ""
    with tempfile.TemporaryDirectory(prefix="firearrow-chromium-", ignore_cleanup_errors=True) as profile:
        for argument in (*ARGUMENTS, f"--user-data-dir={profile}"):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        browser = Chrome(options, Service(DRIVER or ""))
        try:
            theme(browser, dark=dark)
            browser.set_window_size(*WIDE)
            browser.set_page_load_timeout(60)
            yield browser
        finally:
            browser.quit()


@contextmanager
def quiet(browser: Chrome, allowed: str = "404") -> Iterator[None]:
    """The browser complains about nothing else meanwhile: no violation of the policy, no error of a script."""
    browser.get_log("browser")
    yield
    complaints = [each["message"] for each in browser.get_log("browser") if allowed not in each["message"]]
    assert complaints == []


class BrowserVisitor(Visitor):
    """A visitor whose forms are filled in, and sent, in a real browser."""

    def __init__(self, url: str, browser: Chrome) -> None:
        super().__init__(url)
        self._url = url
        self._browser = browser

    def preview(self, action: str, **values: str) -> httpx.Response:
        self._browser.get(f"{self._url}/actions/{action}")
        for name, value in self.fields(values).items():
            _enter(self._browser.find_element(By.NAME, name), value)
        return self._sent()

    def act(self, action: str, **values: str) -> httpx.Response:
        seen = self.preview(action, **values)
        assert seen.status_code == 200, seen.text[-1500:]
        return self._sent()

    def _sent(self) -> httpx.Response:
        """The page that follows the form of this one."""
        button = self._browser.find_element(By.XPATH, "//main//form[@method='post']//button[last()]")
        with quiet(self._browser, "the server responded with a status of"):
            self._browser.execute_script("window.isOld = true")
            button.click()
            WebDriverWait(self._browser, WAIT_S, 0.05, (WebDriverException,)).until(
                lambda it: it.execute_script("return !window.isOld && document.readyState === 'complete'")
            )
        url = httpx.URL(self._browser.current_url)
        if url.path.startswith("/jobs/"):
            return httpx.Response(303, headers={"location": url.path}, request=httpx.Request("GET", url))
        status = self._browser.execute_script(
            "return performance.getEntriesByType('navigation')[0].responseStatus"
        )
        return httpx.Response(status, text=self._browser.page_source, request=httpx.Request("GET", url))


def _enter(field: WebElement, value: str) -> None:
    if field.get_attribute("type") == "checkbox":
        field.click()
    else:
        field.send_keys(value)


def axe_script() -> str:
    """axe-core of npm, kept in the folder that FIREARROW_AXE names, or else in one of this user."""
    folder = Path(os.environ.get("FIREARROW_AXE") or Path.home() / ".cache" / "firearrow-axe")
    script = folder / "node_modules" / "axe-core" / "axe.min.js"
    if not script.exists():
        folder.mkdir(parents=True, exist_ok=True)
        command = ["npm", "install", "--no-save", "--prefix", str(folder), AXE_PACKAGE]
        subprocess.run(command, check=True, capture_output=True, timeout=120)
    return script.read_text("utf-8")


def theme(browser: Chrome, *, dark: bool) -> None:
    """That the system of the visitor has."""
    feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})


def size(browser: Chrome, width: int, height: int) -> None:
    """Of the page itself, also below the least width of a window."""
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
