"""A headless Chromium with a profile of its own."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service

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
