"""Pages in a real Chromium: nothing hostile runs, everything is accessible, live parts move, and forms work."""

from collections.abc import Iterator
from urllib.parse import quote

import pytest

pytest.importorskip("selenium")

from selenium.common.exceptions import TimeoutException
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.wait import WebDriverWait

from firearrow.client import blocking
from firearrow.client.base.message import Message
from tests.console.browser import (
    CHROMIUM,
    DRIVER,
    PHONE,
    WAIT_S,
    WIDE,
    axe_script,
    chromium,
    quiet,
    size,
    theme,
)
from tests.console.conftest import Site
from tests.console.running import HOSTILE, name_server
from tests.console.screenshots import shown_pages
from tests.console.shown_data import fill_more

pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="needs chromium and chromium-driver (apt-get install)"
)


@pytest.fixture(scope="module")
def clients(site: Site) -> Iterator[None]:
    with fill_more(site.broker):
        yield


@pytest.fixture(scope="module")
def pages(site: Site, clients: None) -> dict[str, str]:
    return shown_pages(site.broker, site.console, site.ids)


@pytest.fixture(scope="module")
def browser(clients: None) -> Iterator[Chrome]:
    with chromium() as made:
        yield made


def wait_for(browser: Chrome, script: str) -> object:
    try:
        return WebDriverWait(browser, WAIT_S, poll_frequency=0.1).until(
            lambda it: it.execute_script(f"return {script}")
        )
    except TimeoutException:
        pytest.fail(f"{browser.current_url}: {script}\n{browser.page_source[-3000:]}")


def test_hostile_messages_do_nothing(site: Site, browser: Chrome) -> None:
    pages = ["/topics/payments/messages"]
    pages += [f"/topics/payments/messages/{name}" for name in site.ids[20:]]
    pages += [f"/topics?q={quote(text)}" for text in HOSTILE]
    pages += [f"/actions/send?f.topic={quote(text)}&f.body={quote(text)}" for text in HOSTILE]
    with quiet(browser):
        for path in pages:
            browser.get(site.console.url + path)
            assert "FireArrow" in browser.title, path
            assert (
                browser.execute_script(
                    "return document.querySelectorAll('main img, main iframe, main script').length"
                )
                == 0
            )


def faults(browser: Chrome, run: str) -> list[tuple[str, list[str]]]:
    """What axe finds that is serious: the rule, and where."""
    result = browser.execute_async_script(f"axe.run({run}).then(arguments[arguments.length - 1])")
    return [
        (each["id"], [node["html"][:200] for node in each["nodes"]][:3])
        for each in result["violations"]
        if each["impact"] in ("serious", "critical")
    ]


def test_every_page_is_accessible_and_fits_a_phone(
    site: Site, browser: Chrome, pages: dict[str, str]
) -> None:
    """In both themes: each page is loaded once, and of the rules only that of the contrast depends on the theme."""
    axe, found = axe_script(), {}
    for name, path in pages.items():
        theme(browser, dark=False)
        with quiet(browser):
            browser.get(site.console.url + path)
        browser.execute_script(axe)
        serious: list[object] = list(faults(browser, "document"))
        theme(browser, dark=True)
        serious += faults(browser, "document, {runOnly: ['color-contrast']}")
        size(browser, *PHONE)
        width = browser.execute_script("return document.documentElement.scrollWidth")
        size(browser, *WIDE)
        if width > PHONE[0]:
            serious.append(f"it is {width} wide")
        if serious:
            found[name] = serious
    theme(browser, dark=False)
    assert found == {}


def test_keys(site: Site, browser: Chrome) -> None:
    browser.get(f"{site.console.url}/topics")
    body = browser.find_element(By.TAG_NAME, "body")
    body.send_keys(Keys.TAB)
    assert browser.switch_to.active_element.text == "Skip to the content"
    browser.switch_to.active_element.send_keys(Keys.ENTER)
    assert browser.switch_to.active_element.get_attribute("id") == "main"
    browser.switch_to.active_element.send_keys("/")
    assert browser.switch_to.active_element.get_attribute("name") == "q"
    browser.switch_to.active_element.send_keys("pay" + Keys.ENTER)
    wait_for(browser, "location.search === '?q=pay' && document.querySelectorAll('tbody tr').length === 1")


def test_the_theme_can_be_chosen(site: Site, browser: Chrome) -> None:
    browser.get(f"{site.console.url}/topics")
    colours = set()
    for _ in range(3):
        browser.find_element(By.ID, "theme").click()
        colours.add(browser.execute_script("return getComputedStyle(document.body).backgroundColor"))
    assert len(colours) == 2
    browser.execute_script("localStorage.clear()")


def test_the_home_page_draws_curves_and_asks_the_doctor(site: Site, browser: Chrome) -> None:
    with quiet(browser):
        browser.get(site.console.url)
        wait_for(browser, "document.querySelectorAll('.curve canvas').length >= 1")
        wait_for(
            browser,
            "[...document.querySelectorAll('.finding')].some(e => e.textContent.includes('dead letters'))",
        )


def test_a_page_refreshes_itself(site: Site, browser: Chrome) -> None:
    browser.get(f"{site.console.url}/topics/orders")
    browser.find_element(By.LINK_TEXT, "Refresh every 5 seconds").click()
    wait_for(browser, "location.search === '?live=1'")
    before = browser.execute_script("return document.querySelector('#live p').textContent")
    browser.execute_script("window.kept = true")
    with blocking.Producer("refresh", name_server=name_server(site.broker)) as producer:
        producer.send(Message("orders", b"one more"))
    wait_for(browser, f"document.querySelector('#live p').textContent !== {before!r}")
    assert browser.execute_script("return window.kept") is True
    with blocking.Admin(name_server=name_server(site.broker)) as admin:
        admin.create_topic("deleted", 1)
        browser.get(f"{site.console.url}/topics/deleted?live=1")
        wait_for(browser, "document.querySelector('#stale').hidden")
        admin.delete_topic("deleted")
    wait_for(browser, "!document.querySelector('#stale').hidden")


def test_messages_appear_live(site: Site) -> None:
    with (
        chromium(waits=False) as browser,  # the page has no end
        blocking.Producer("live", name_server=name_server(site.broker)) as producer,
    ):
        browser.get(f"{site.console.url}/topics/orders/live")
        wait_for(browser, "document.querySelector('#messages') !== null")
        for number in range(3):
            producer.send(Message("orders", b"<i>live %d</i>" % number))
            wait_for(browser, f"document.body.textContent.includes('<i>live {number}</i>')")


def test_an_action(site: Site, browser: Chrome) -> None:
    with quiet(browser):
        browser.get(f"{site.console.url}/topics")
        browser.find_element(By.LINK_TEXT, "Create a topic").click()
        browser.find_element(By.NAME, "f.topic").send_keys("by-browser")
        browser.find_element(By.NAME, "f.--queues").send_keys("2" + Keys.ENTER)
        wait_for(
            browser, "document.body.textContent.includes('firearrow topic create --queues=2 by-browser')"
        )
        browser.find_element(By.XPATH, "//main//button[text()='Create a topic']").click()
        wait_for(browser, "document.body.textContent.includes('Done.')")
        browser.get(f"{site.console.url}/topics/by-browser")
        assert "2" in browser.find_element(By.XPATH, "//h2[text()='Settings']/following::td[2]").text


def test_without_javascript(site: Site, browser: Chrome, pages: dict[str, str]) -> None:
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        for name, path in pages.items():
            browser.get(site.console.url + path)
            assert browser.find_element(By.TAG_NAME, "h1").text, name
        browser.get(site.console.url)
        assert not browser.find_element(By.ID, "theme").is_displayed()
        assert browser.find_elements(By.CSS_SELECTOR, ".curve polyline")
        browser.find_element(By.LINK_TEXT, "Let the doctor look").click()
        assert "dead letters" in browser.find_element(By.TAG_NAME, "main").text
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
