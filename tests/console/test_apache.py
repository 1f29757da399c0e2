"""The console against Apache's broker and against ours, with data made by the official Java client: every page answers,
or states that only FireArrow's brokers do; and every action works. A real Chromium, if
it is installed, shows the pages and sends the forms."""

import asyncio
import html
import re
from collections.abc import Iterator
from typing import NamedTuple

import pytest

pytest.importorskip("selenium")

from httpx import Response
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By

from firearrow.client.admin_api.admin import Admin
from firearrow.client.admin_api.message_queries import MessageQueries
from firearrow.client.cli.messages.half_messages import HALF_TOPIC
from firearrow.client.console.actions import ACTIONS
from firearrow.client.console.actions import ONLY_FIREARROW as OWN_ACTIONS
from firearrow.client.console.app import NAV
from firearrow.client.console.app import ONLY_FIREARROW as OWN_PAGES
from tests.console.browser import CHROMIUM, DRIVER, BrowserVisitor, chromium, quiet
from tests.console.java_data import FAILING, HOSTILE, ORDERS, Made, make
from tests.console.running import ConsoleProcess, Visitor
from tests.interop.driver import Driver
from tests.interop.peers import LIFE, Apache, FireArrow, Peer, address
from tests.interop.toolchain import java_class_path, need
from tests.support.command_line import here
from tests.support.eventually import eventually

pytestmark = pytest.mark.interop
TOPICS = {"orders": "2", "steps": "1", "payments": "2"}
SETTINGS = {"autoCreateTopicEnable": "true", "brokerName": "broker-a", "transactionCheckMax": "1000"}
NO_USERS = ("add-user", "set-user", "grant", "revoke", "delete-user")
"""Actions that need a broker with users."""
REASON = "Only FireArrow's brokers answer this"


class Site(NamedTuple):
    peer: Peer
    console: ConsoleProcess
    made: Made

    @property
    def is_apache(self) -> bool:
        return self.peer.kind == "apache"

    def older_copy(self) -> str:
        """Offset id of a copy of the open transaction that a check has stored again since."""

        async def ask() -> str:
            async with Admin(name_server=self.peer.name_server) as admin:
                queries = MessageQueries(admin.calls.instance, 10)
                copies = await queries.copies(HALF_TOPIC, self.made.half, await admin.calls.masters())
                return copies[0].offset_message_id if len(copies) > 1 else ""

        return eventually(lambda: asyncio.run(ask()), 30)

    def rows(self, *words: str) -> list[dict[str, object]]:
        return here(*words, name_server=self.peer.name_server).lines


@pytest.fixture(scope="module", params=["apache", "firearrow"])
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    need(lambda: java_class_path("client5"))
    folder = tmp_path_factory.mktemp(request.param)
    kind = Apache if request.param == "apache" else FireArrow
    with kind(folder / "store", LIFE | SETTINGS) as peer:
        for topic, queues in TOPICS.items():
            here("topic", "create", topic, "--queues", queues, name_server=peer.name_server).succeeded()
        client = Driver("java5", peer.name_server, folder / "home")
        try:
            with ConsoleProcess(address(peer.name_server), folder) as console:
                yield Site(peer, console, make(client))
        finally:
            client.stop()


@pytest.fixture(scope="module")
def browser() -> Iterator[Chrome | None]:
    if not (CHROMIUM and DRIVER):
        yield None
        return
    with chromium() as made:
        yield made


@pytest.fixture
def visitor(site: Site, browser: Chrome | None) -> Iterator[Visitor]:
    url = site.console.url
    with Visitor(url) if browser is None else BrowserVisitor(url, browser) as made:
        yield made


def own(text: str) -> str:
    """What a reader sees of a page."""
    found = re.search(r"<main.*</main>", text, re.DOTALL)
    assert found is not None
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", found[0])).split())


def test_every_page_answers_or_states_why_not(site: Site, visitor: Visitor) -> None:
    for title, href in NAV:
        text = visitor.get(href).text
        is_off = site.is_apache and href in OWN_PAGES
        assert (REASON in text.partition("<main")[0]) == site.is_apache, href
        link = re.search(rf'<a href="{href}"[^>]*>{title}</a>', text)
        assert link is not None, href
        assert (REASON in link[0]) == is_off, href
        if is_off and href not in ("/ordered", "/pop"):  # these let a group be chosen
            assert "only FireArrow's does" in own(visitor.page(href, 501)), href
        else:
            assert "<h1>" in visitor.page(href), href
    for href in ("/ordered?group=ordered", "/pop?group=billing"):
        visitor.page(href, 501 if site.is_apache else 200)


def test_no_page_makes_the_browser_complain(site: Site, browser: Chrome | None) -> None:
    if browser is None:
        pytest.skip("needs chromium and chromium-driver (apt-get install)")
    paths = [href for _, href in NAV if not (site.is_apache and href in OWN_PAGES)]
    paths += [f"/actions/{name}" for name in ACTIONS if not (site.is_apache and name in OWN_ACTIONS)]
    paths += [
        "/topics/orders",
        "/topics/orders/messages?from=start",
        "/groups/billing",
        "/groups/ordered/compared",
    ]
    paths += [f"/topics/orders/messages/{site.made.orders[0]}", "/dead-letters/billing"]
    for path in paths:
        with quiet(browser):
            browser.get(site.console.url + path)
        assert browser.find_element(By.TAG_NAME, "h1").text, path


def test_home(site: Site, visitor: Visitor) -> None:
    text = own(visitor.page("/"))
    assert f"broker-a {site.peer.address} {'Apache' if site.is_apache else 'FireArrow'}" in text
    if site.is_apache:
        assert "Unread messages –" in text
        assert "Apache's brokers keep none" in text


def test_topics_and_messages(site: Site, visitor: Visitor) -> None:
    stored = ORDERS + FAILING + 2
    assert f"orders broker-a 2 rw UNSPECIFIED {stored}" in own(visitor.page("/topics"))
    text = own(visitor.page("/topics/orders"))
    assert f"{stored} messages. Read by billing , idle ." in text
    page = "/topics/orders/messages"
    assert ids(visitor.page(f"{page}?key=k2")) == set(site.made.orders)
    assert ids(visitor.page(f"{page}?sql=shop%3D'north'")) == set(site.made.orders)
    assert ids(visitor.page(f"{page}?property=shop%3Dnorth&from=start")) == set(site.made.orders)
    assert len(ids(visitor.page(f"{page}?tag=bad"))) == FAILING
    assert len(ids(visitor.page(f"{page}?text=unread"))) == 1
    text = visitor.page(f"{page}?from=start")
    assert "<img" not in text
    assert html.escape(HOSTILE).replace("&quot;", "&#34;") in text
    assert (
        "JAVA" in own(visitor.page("/topics/orders/producers")) or site.is_apache
    )  # only FireArrow's list clients


def ids(text: str) -> set[str]:
    return set(re.findall(r'/messages/([0-9A-F]{32,})"', text))


def test_one_message(site: Site, visitor: Visitor) -> None:
    text = own(visitor.page(f"/topics/orders/messages/{site.made.orders[3]}"))
    assert "order 3" in text
    assert "shop north" in text
    assert re.search(r"stored – orders broker-a/[01]:1", text)
    [failed, *_] = ids(visitor.page("/dead-letters/billing"))
    text = own(visitor.page(f"/topics/orders/messages/{failed}"))
    assert "dead billing %DLQ%billing" in text
    assert "retry billing" in text


def test_groups(site: Site, visitor: Visitor) -> None:
    text = own(visitor.page("/groups"))
    assert "billing yes 16 0 – – 2" in text
    assert "ordered yes 16 1 CONSUME_PASSIVELY CLUSTERING 2" in text
    text = own(visitor.page("/groups/billing"))
    assert "lag 2" in text
    assert "%RETRY%billing" in text
    text = visitor.page("/groups/ordered")
    [member] = re.findall(r'href="(/groups/ordered/members/[^"]+)"', text)
    text = own(visitor.page(member))
    assert "PROP_CONSUMEORDERLY true" in text
    assert "ConsumeMessageThread" in text
    assert "subscribe the same" in own(visitor.page("/groups/ordered/compared"))
    text = own(visitor.page("/clients"))
    assert "JAVA 5.5.0" in text
    assert "/127.0.0.1" not in text
    text = own(visitor.page("/dead-letters"))
    assert f"billing {FAILING}" in text


def test_options(site: Site, visitor: Visitor) -> None:
    text = own(visitor.page("/config?q=enableLmq"))
    assert "enableLmq true " + ("–" if site.is_apache else "no") in text
    assert ("Only FireArrow's brokers report which differ" in text) == site.is_apache


def test_what_only_firearrow_answers(site: Site, visitor: Visitor) -> None:
    if site.is_apache:
        for name in OWN_ACTIONS:
            assert "only FireArrow's does" in own(visitor.page(f"/actions/{name}", 501))
        assert visitor.page("/topics/orders").count(REASON) == len(OWN_PAGES) + 2
    else:
        assert "orders delay" in own(visitor.page("/waiting"))
        assert site.made.half in visitor.page("/transactions")
        assert "steps broker-a 0" in own(visitor.page("/ordered?group=ordered"))
        assert "INFO" in own(visitor.page("/log"))


def test_actions(site: Site, visitor: Visitor) -> None:
    """All of them, but for those of users; the last ones undo what the others need."""
    done = set()

    def act(name: str, **values: str) -> str:
        done.add(name)
        answer = visitor.act(name, **values)
        if answer.status_code == 303:  # a job
            answer = eventually(lambda: ended(answer.headers["location"]), 30)
        assert answer.status_code == 200, (name, own(answer.text))
        assert "Done." in answer.text or "/jobs/" in str(answer.url), (name, own(answer.text))
        return own(answer.text)

    def ended(job: str) -> Response | None:
        answer = visitor.get(job)
        return None if "running" in own(answer.text) else answer

    act("create-topic", topic="made", __queues="3")
    act("change-topic", topic="made", __queues="5")
    sent = act("send", topic="made", body="first", __tag="t", __key="k")
    found = re.search(r" msg id ([0-9A-F]{32,})", sent)
    assert found is not None
    act("resend", topic="made", id=found[1])
    assert [row["body"] for row in site.rows("tail", "made", "--from", "start", "-e")] == ["first"] * 2
    later = re.search(r"recall handle (\S+)", act("send", topic="made", body="later", __delay="1h"))
    assert later is not None
    act("recall", handle=later[1])
    act("seek-group", group="billing", topic="orders", __to="start")
    assert site.rows("group", "show", "billing")[0]["lag"] == ORDERS + FAILING + 2
    act("pause-group", group="billing")
    act("pause-group", group="billing", __resume="1")
    assert "half message x" in own(visitor.preview("ask-transaction", id="x").text)
    done.add("ask-transaction")
    act("commit", id=site.older_copy())
    eventually(lambda: len(site.rows("tail", "payments", "--from", "start", "-e")) == 1, 30)
    assert "half message x" in own(visitor.preview("roll-back", id="x").text)
    done.add("roll-back")
    act("set-config", option="fileReservedTime=71")
    # in their order: progress passes over a letter once those before it are done
    letters = sorted(site.rows("dlq", "show", "billing"), key=lambda row: (row["queueId"], row["offset"]))
    first, second = (row["msgId"] for row in letters)
    assert {first, second} == set(ids(visitor.page("/dead-letters/billing")))
    act("redrive", group="billing", __ids=first)
    act("drop", group="billing", __ids=second)
    assert re.search(r"billing [12] 0 ", own(visitor.page("/dead-letters")))  # ours is removed
    if not site.is_apache:
        act("trim-topic", topic="made", __before="+1h")
        act("purge-topic", topic="made")
        act("park-head", group="ordered", topic="steps", queue="0")
        act("unlock-queue", group="ordered", topic="steps", queue="0")
        act("close-client", client=str(site.rows("group", "members", "idle")[0]["clientId"]))
    act("seek-group", group="ordered", topic="steps", __to="end")
    act("delete-topic", topic="made")
    act("delete-group", group="billing")
    left = set(ACTIONS) - done - set(NO_USERS)
    assert left == (set(OWN_ACTIONS) if site.is_apache else set())
