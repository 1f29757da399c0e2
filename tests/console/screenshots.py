"""Pictures of every page in both themes, and of some on a phone: `python -m tests.console.screenshots FOLDER`."""

import re
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import quote

from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from firearrow.client import blocking
from tests.auth.secured import ROOT, ROOT_PASSWORD, SignedSocket, create_user, grant, secured
from tests.console.browser import PHONE, WIDE, chromium, size
from tests.console.running import ConsoleProcess, Visitor, fill, name_server
from tests.console.shown_data import fill_more
from tests.support.broker_process import BrokerProcess
from tests.support.eventually import eventually

PAGES = {
    "home": "/",
    "topics": "/topics",
    "topic": "/topics/orders",
    "messages": "/topics/payments/messages",
    "message": "/topics/orders/messages/{id}",
    "groups": "/groups",
    "group": "/groups/billing",
    "dead-letters": "/dead-letters",
    "dead-letters-of": "/dead-letters/billing",
    "waiting": "/waiting",
    "transactions": "/transactions",
    "ordered": "/ordered?group=ordered",
    "choose-group": "/pop",
    "pop": "/pop?group=billing",
    "producers": "/topics/orders/producers",
    "compared": "/groups/billing/compared",
    "clients": "/clients",
    "jobs": "/jobs",
    "log": "/log",
    "unlock": "/actions/park-head?f.group=ordered&f.topic=payments&f.queue=0",
    "add-user": "/actions/add-user",
    "member": "/groups/billing/members/{client}",
    "job": "/jobs/1",
    "users": "/users",
    "config": "/config",
    "doctor": "/doctor",
    "action": "/actions/create-topic?f.topic=new",
    "seek": "/actions/seek-group?f.group=billing",
    "sign-in": "/sign-in",
    "error": "/topics/absent",
}
HIGHEST = 3000
ON_PHONE = ("home", "topics", "messages", "action")
USERS = {"users-known": "/users", "user": "/users/app?what=send&resource=orders"}
"""At a broker that has users."""
DRAWN_S, LOADED_S = 0.5, 20.0
"""Until curves are drawn, and parts are loaded at the latest."""


STEPS = 3
"""Of the history, for curves."""


def known(visitor: Visitor, series: str) -> int:
    """How many values of its history there are."""
    values = visitor.get(f"/series?name={series}").json()["values"]
    return sum(value is not None for value in values)


def shown_pages(broker: BrokerProcess, console: ConsoleProcess, ids: list[str]) -> dict[str, str]:
    """The paths of PAGES, after a job was started."""
    with blocking.Admin(name_server=name_server(broker)) as admin:
        client = admin.consumers("billing").connections[0].client_id
    with console.visitor() as visitor:
        letters = re.findall(r'name="f\.--ids" value="([0-9A-F]+)"', visitor.page("/dead-letters/billing"))
        visitor.act("redrive", group="billing", __ids=",".join(letters[:2]))
    return {name: path.format(id=ids[3], client=quote(client, safe="")) for name, path in PAGES.items()}


def take(browser: Chrome, file: Path, url: str, shape: tuple[int, int]) -> None:
    size(browser, *shape)
    browser.get(url)
    until_s = time.monotonic() + LOADED_S
    while browser.find_elements(By.CLASS_NAME, "htmx-request") and time.monotonic() < until_s:
        time.sleep(0.1)
    time.sleep(DRAWN_S)
    height = browser.execute_script("return document.documentElement.scrollHeight")
    size(browser, shape[0], min(max(height, shape[1]), HIGHEST))
    time.sleep(DRAWN_S)  # curves are drawn again
    browser.save_screenshot(str(file))


def of_users(folder: Path, browsers: dict[str, Chrome], made: Path) -> None:
    """The pages of users, and of one who has signed in."""
    with secured(made / "users") as broker, SignedSocket(broker.address) as root:
        create_user(root, "app", "app-word")
        grant(root, "app", "Topic:orders*", "Pub", "Sub")
        assert broker.name_server is not None
        with ConsoleProcess(broker.name_server, made) as console:
            for kind, browser in browsers.items():
                browser.get(f"{console.url}/sign-in")
                browser.find_element(By.NAME, "user").send_keys(ROOT)
                browser.find_element(By.NAME, "password").send_keys(ROOT_PASSWORD + Keys.ENTER)
                for name, path in USERS.items():
                    take(browser, folder / f"{name}-{kind}.png", console.url + path, WIDE)


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="firearrow-pictures-") as made,
        BrokerProcess(Path(made) / "store") as broker,
        chromium() as light,
        chromium(dark=True) as dark,
    ):
        browsers = {"light": light, "dark": dark}
        ids = fill(broker)
        assert broker.name_server is not None
        with fill_more(broker), ConsoleProcess(broker.name_server, Path(made)) as console:
            pages = shown_pages(broker, console, ids)
            with console.visitor() as visitor:
                eventually(lambda: known(visitor, "in.messages_per_s") >= STEPS, 90)
            for kind, browser in browsers.items():
                for name, path in pages.items():
                    take(browser, folder / f"{name}-{kind}.png", console.url + path, WIDE)
                for name in ON_PHONE:
                    take(browser, folder / f"{name}-phone-{kind}.png", console.url + pages[name], PHONE)
        of_users(folder, browsers, Path(made))
    print(f"{len(list(folder.glob('*.png')))} pictures are in {folder}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
