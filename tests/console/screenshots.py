"""Pictures of every page in both themes, and of some on a phone: `python -m tests.console.screenshots FOLDER`."""

import sys
import tempfile
import time
from pathlib import Path

from tests.console.browser import PHONE, WIDE, chromium, size
from tests.console.running import ConsoleProcess, fill
from tests.console.shown_data import fill_more
from tests.support.broker_process import BrokerProcess

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
    "users": "/users",
    "config": "/config",
    "doctor": "/doctor",
    "action": "/actions/create-topic?f.topic=new",
    "seek": "/actions/seek-group?f.group=billing",
    "sign-in": "/sign-in",
    "error": "/topics/absent",
}
ON_PHONE = ("home", "topics", "messages", "action")
DRAWN_S = 1.5
"""Until curves are drawn and parts are loaded."""


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="firearrow-pictures-") as made,
        BrokerProcess(Path(made) / "store") as broker,
    ):
        ids = fill(broker)
        assert broker.name_server is not None
        with fill_more(broker), ConsoleProcess(broker.name_server, Path(made)) as console:
            for theme in ("light", "dark"):
                with chromium(dark=theme == "dark") as browser:
                    for name, path in PAGES.items():
                        for kind, shape in (("", WIDE), ("-phone", PHONE)):
                            if kind and name not in ON_PHONE:
                                continue
                            size(browser, *shape)
                            browser.get(console.url + path.format(id=ids[3]))
                            time.sleep(DRAWN_S)
                            height = browser.execute_script("return document.documentElement.scrollHeight")
                            size(browser, shape[0], min(max(height, shape[1]), 3000))
                            browser.save_screenshot(str(folder / f"{name}{kind}-{theme}.png"))
    print(f"{len(list(folder.glob('*.png')))} pictures are in {folder}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
