"""Signing in with the users of a broker, what each of them may see and do, and forms of other sites."""

import asyncio
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import orjson
import pytest

from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow.client import blocking
from firearrow.client.base.errors import BrokerError, ClientError, NotRunning
from firearrow.client.base.message import Message
from firearrow.client.base.options import ClientOptions, Credentials
from firearrow.client.cli.contexts import Context
from firearrow.client.console import sessions
from firearrow.client.console.app import NAV
from firearrow.client.console.server import main
from firearrow.client.console.sessions import (
    ADDRESS_MAX,
    NAME_MAX,
    PAIR_MAX,
    SESSIONS_OF_USER_MAX,
    Failures,
    Gate,
    Sessions,
    login_fault,
)
from tests.auth.secured import ROOT, ROOT_PASSWORD, SignedSocket, create_user, grant, secured
from tests.console.running import PROOF, ConsoleProcess, Visitor
from tests.support.broker_process import BrokerProcess
from tests.support.eventually import eventually
from tests.support.requests import topic_ext

LOOKER = ("looker", "looker-word")
READER = ("reader", "reader-word")
NOWHERE = "127.0.0.1:1"
"""Where no name server listens."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """`looker` may see the topic, `reader` may consume it."""
    with (
        secured(tmp_path_factory.mktemp("users") / "store") as running,
        SignedSocket(running.address) as root,
    ):
        assert root.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext("orders")).code == 0
        for user, actions in ((LOOKER, ["Get", "List"]), (READER, ["Sub", "Get", "List"])):
            create_user(root, *user)
            for resource in ("Topic:*", "Group:*", "Cluster:*"):
                grant(root, user[0], resource, *actions)
        assert running.name_server is not None
        where = "{}:{}".format(*running.name_server)
        options = ClientOptions(name_server=where, credentials=Credentials(ROOT, ROOT_PASSWORD))
        with blocking.Producer("p", client=options) as producer:
            producer.send(Message("orders", b"the secret body", keys=["k1"]))
        yield running


@pytest.fixture(scope="module")
def console(broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleProcess]:
    assert broker.name_server is not None
    with ConsoleProcess(broker.name_server, tmp_path_factory.mktemp("console")) as running:
        yield running


def test_without_a_login_only_the_login_is_shown(console: ConsoleProcess) -> None:
    with console.visitor() as visitor:
        for path in ("/", "/topics", "/topics/orders/messages", "/actions/delete-topic", "/series?name=x"):
            answer = visitor.get(path)
            assert answer.status_code == 303
            assert answer.headers["location"].startswith("/sign-in")
        assert "password" in visitor.page("/sign-in")
        assert visitor.post("/actions/create-topic", data={"f.topic": "x"}).status_code == 303


def test_a_login_and_its_end(console: ConsoleProcess) -> None:
    with console.visitor() as visitor:
        answer = visitor.sign_in(ROOT, ROOT_PASSWORD)
        assert (answer.status_code, answer.headers["location"]) == (303, "/topics")
        assert ">orders</a>" in visitor.page("/topics")
        assert ROOT in visitor.page("/users")
        old = dict(visitor.cookies)
        assert visitor.post("/sign-out", data={"csrf": visitor.token()}).status_code == 303
        visitor.cookies.update(old)
        assert visitor.get("/topics").status_code == 303


@pytest.mark.parametrize(
    "goal", ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)"]
)
def test_a_login_leads_only_to_pages_of_the_console(console: ConsoleProcess, goal: str) -> None:
    with console.visitor() as visitor:
        answer = visitor.post("/sign-in", data={"user": ROOT, "password": ROOT_PASSWORD, "next": goal})
        assert answer.headers["location"] == "/"


def test_failed_logins_have_to_wait(broker: BrokerProcess, tmp_path: Path) -> None:
    """A stranger who guesses a password locks no other user out."""
    assert broker.name_server is not None
    with (
        ConsoleProcess(broker.name_server, tmp_path) as console,
        Visitor(console.url, "127.0.0.2") as stranger,
        console.visitor() as visitor,
    ):
        assert visitor.sign_in(ROOT, ROOT_PASSWORD).status_code == 303
        statuses = [stranger.sign_in(ROOT, "wrong").status_code for _ in range(7)]
        assert statuses == [401] * 5 + [429] * 2
        assert stranger.sign_in(ROOT, ROOT_PASSWORD).status_code == 429
        assert stranger.sign_in(*READER).status_code == 303  # another name
        assert visitor.get("/topics").status_code == 200
        visitor.cookies.clear()
        assert visitor.sign_in(ROOT, ROOT_PASSWORD).status_code == 303
        assert "wrong" not in console.log.read_text()


def test_failures_by_name_and_by_address() -> None:
    failures = Failures()
    for number in range(NAME_MAX):
        assert failures.wait_s("10.0.0.1", "root") == 0
        failures.failed(f"10.1.{number}.1", "root")
    assert failures.wait_s("10.0.0.1", "root") > 0
    assert failures.wait_s("10.0.0.1", "other") == 0
    for number in range(PAIR_MAX):
        failures.failed(f"2001:db8::{number}", "app")
    assert failures.wait_s("2001:db8::ffff", "app") > 0
    assert failures.wait_s("2001:db8:0:1::1", "app") == 0
    failures.succeeded("2001:db8::7", "app")
    assert failures.wait_s("2001:db8::ffff", "app") == 0
    for number in range(ADDRESS_MAX):
        assert failures.wait_s("10.0.0.9", "any") == 0
        failures.failed("10.0.0.9", f"guest{number}")
    assert failures.wait_s("10.0.0.9", "any") > 0


def test_a_broker_that_lets_wait_ends_no_session() -> None:
    """FireArrow's answer to further logins of an address that has failed often."""
    error = BrokerError(
        ResponseCode.NO_PERMISSION, "too many failed logins from 10.0.0.1: try again in 2 s", "b"
    )
    assert login_fault(error, "app") is None
    for remark in ("User:app is not found.", "check signature failed.", "User:app is disabled."):
        assert login_fault(BrokerError(ResponseCode.NO_PERMISSION, remark, "b"), "app") is not None
    name = "is not found"
    remark = f"User:{name} has no permission to access Topic:x"
    assert login_fault(BrokerError(ResponseCode.NO_PERMISSION, remark, "b"), name) is None


def test_many_logins_of_a_user_end_only_its_own_sessions(console: ConsoleProcess) -> None:
    with console.visitor() as admin:
        assert admin.sign_in(ROOT, ROOT_PASSWORD).status_code == 303
        visitors = [console.visitor() for _ in range(SESSIONS_OF_USER_MAX + 1)]
        for visitor in visitors:
            assert visitor.sign_in(*LOOKER).status_code == 303
        assert [each.get("/actions/send").status_code for each in (visitors[0], visitors[1], admin)] == [
            303,
            200,
            200,
        ]
        for visitor in visitors:
            visitor.close()


def test_a_session_ends_with_its_user(broker: BrokerProcess, console: ConsoleProcess) -> None:
    with SignedSocket(broker.address) as root, console.visitor() as deleted, console.visitor() as changed:
        for visitor, name in ((deleted, "deleted"), (changed, "changed")):
            create_user(root, name, "word-of-it")
            grant(root, name, "Cluster:*", "Get", "List")
            grant(root, name, "Topic:*", "Get", "List")
            assert visitor.sign_in(name, "word-of-it").status_code == 303
            assert visitor.get("/topics").status_code == 200
        assert root.ask(RequestCode.AUTH_DELETE_USER, {"username": "deleted"}).code == 0
        body = {"password": "another-word"}
        answer = root.ask(RequestCode.AUTH_UPDATE_USER, {"username": "changed"}, orjson.dumps(body))
        assert answer.code == 0
        for visitor in (deleted, changed):
            eventually(partial(_leads_to_sign_in, visitor), within_s=10)
            assert visitor.get("/actions/create-topic").status_code == 303  # the session is deleted as well


def test_unused_sessions_end_with_their_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "SESSION_IDLE_S", 0.0)

    async def check() -> None:
        opened = Sessions()
        gate = Gate(Context(namesrv=NOWHERE), 1.0)
        access = replace(await gate.unsigned(), user="app")
        await opened.open(access)
        await opened.end_unused()
        assert len(opened) == 0
        with pytest.raises(NotRunning):
            await access.admin.topics()

    asyncio.run(check())


def test_brokers_that_do_not_answer_count_as_no_failed_login() -> None:
    async def check() -> None:
        gate = Gate(Context(namesrv=NOWHERE), 1.0)
        first, second = await asyncio.gather(gate.unsigned(), gate.unsigned())
        assert first is second
        for _ in range(PAIR_MAX + 1):
            with pytest.raises(ClientError):
                await gate.log_in("app", "word", "10.0.0.1")
        assert gate.failures.wait_s("10.0.0.1", "app") == 0
        await gate.close()

    asyncio.run(check())


def _leads_to_sign_in(visitor: Visitor) -> bool:
    return visitor.get("/topics").headers.get("location", "").startswith("/sign-in?next=%2Ftopics")


def test_a_login_is_a_small_form(console: ConsoleProcess) -> None:
    with console.visitor() as visitor:
        large = {"user": "x", "password": "p" * (32 << 10)}
        assert visitor.post("/sign-in", data=large).status_code == 413
        assert visitor.post("/sign-in", data={f"f{n}": "" for n in range(300)}).status_code == 400


@pytest.mark.parametrize("name", ["absent", "x has no permission to access y", "", "a" * 300, "<b>"])
def test_no_such_user(console: ConsoleProcess, name: str) -> None:
    with console.visitor() as visitor:
        assert visitor.sign_in(name, "wrong").status_code in (401, 429)
        assert visitor.get("/topics").status_code == 303


def test_bodies_are_for_those_who_may_consume(broker: BrokerProcess, tmp_path: Path) -> None:
    assert broker.name_server is not None
    with ConsoleProcess(broker.name_server, tmp_path) as console:
        seen = {}
        for user in (LOOKER, READER):
            with console.visitor() as visitor:
                assert visitor.sign_in(*user).status_code == 303
                text = visitor.page("/topics/orders/messages?key=k1")
                found = re.search(r"/topics/orders/messages/([0-9A-F]{32})", text)
                assert found is not None
                name = found[1]
                one = visitor.page(f"/topics/orders/messages/{name}")
                raw = visitor.get(f"/topics/orders/bodies/{name}")
                seen[user] = ["secret body" in each for each in (text, one, raw.text)]
                assert "has no permission" in visitor.act("delete-topic", topic="orders").text
        assert seen == {LOOKER: [False] * 3, READER: [True] * 3}
        assert (
            f"audit: user={READER[0]} address=127.0.0.1 failed: firearrow topic delete"
            in console.log.read_text()
        )


def test_an_offset_id_shows_no_body_of_another_topic(broker: BrokerProcess, console: ConsoleProcess) -> None:
    """It names a place of a broker: the right counts on the topic of the message that is there."""
    assert broker.name_server is not None
    where = "{}:{}".format(*broker.name_server)
    with SignedSocket(broker.address) as root, console.visitor() as visitor:
        assert root.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext("salaries")).code == 0
        create_user(root, "clerk-of-orders", "clerk-word")
        for resource in ("Topic:salaries", "Group:*", "Cluster:*"):
            grant(root, "clerk-of-orders", resource, "Get", "List")
        grant(root, "clerk-of-orders", "Topic:orders", "Sub", "Get", "List")
        options = ClientOptions(name_server=where, credentials=Credentials(ROOT, ROOT_PASSWORD))
        with blocking.Producer("p", client=options) as producer:
            name = producer.send(Message("salaries", b"the salary of all")).offset_message_id
        visitor.sign_in("clerk-of-orders", "clerk-word")
        text = visitor.page("/topics/orders/messages?key=k1")
        assert "this needs the right Sub on the topic and on the group TOOLS_CONSUMER" in text
        grant(root, "clerk-of-orders", "Group:TOOLS_CONSUMER", "Sub", "Get")
        assert "the secret body" in visitor.page("/topics/orders/messages?key=k1")
        answer = visitor.get(f"/topics/orders/messages/{name}")
        assert (answer.status_code, answer.headers["location"]) == (303, f"/topics/salaries/messages/{name}")
        assert "this needs the right Sub" in visitor.page(answer.headers["location"])
        assert visitor.get(f"/topics/orders/bodies/{name}").status_code == 404
        assert visitor.get(f"/topics/salaries/bodies/{name}").status_code == 400


def test_users_are_added_and_changed(console: ConsoleProcess) -> None:
    """Passwords are typed twice, and in no page and no log."""
    with console.visitor() as root, console.visitor() as added:
        root.sign_in(ROOT, ROOT_PASSWORD)
        seen = root.preview("add-user", name="clerk", password="clerk-word")
        assert "once more" in seen.text
        assert "clerk-word" not in seen.text
        assert "give a value" in root.preview("add-user", name="clerk").text
        assert "Done." in root.act("add-user", name="clerk", password="clerk-word").text
        for hostile in ("a/b?c", "a\nINFO audit: user=root"):
            assert "Done." in root.act("add-user", name=hostile, password="b-word").text
        assert 'href="/users/a%2Fb%3Fc"' in root.page("/users")
        assert "<h1>User a/b?c" in root.page("/users/a%2Fb%3Fc")
        with console.visitor() as other:
            other.sign_in(hostile, "b-word")
            assert "has no permission" in other.act("create-topic", topic="x").text
        proof = PROOF.search(root.preview("set-user", name="clerk", password="other-word").text)
        assert proof is not None
        wrong = root.form({"name": "clerk", "password": "mistyped"}) | {"step": "confirm", "proof": proof[1]}
        assert root.post("/actions/set-user", data=wrong).status_code == 400
        assert added.sign_in("clerk", "clerk-word").status_code == 303
        assert "Done." in root.act("set-user", name="clerk", password="other-word", __status="disable").text
        assert added.sign_in("clerk", "clerk-word").status_code == 401
        assert "Done." in root.act("set-user", name="clerk", __status="enable").text
        assert added.sign_in("clerk", "other-word").status_code == 303
        assert "name what changes" in root.act("set-user", name="clerk").text
        assert "has no permission" in added.act("add-user", name="more", password="x").text
    log = console.log.read_text()
    assert "\nINFO audit" not in log
    assert "user set --status=disable --password clerk" in log
    assert not {"clerk-word", "other-word", "mistyped"} & set(re.findall(r"[\w-]+", log))


def test_one_small_right(broker: BrokerProcess, console: ConsoleProcess) -> None:
    """A user who may only consume one topic sees no other, no group, no option, no user, no log, no job of others."""
    with SignedSocket(broker.address) as root, console.visitor() as visitor:
        assert root.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext("hidden-one")).code == 0
        create_user(root, "small", "small-word")
        grant(root, "small", "Topic:orders", "Sub")
        assert visitor.sign_in("small", "small-word").status_code == 303
        for _, href in NAV:
            answer = visitor.get(href)
            assert answer.status_code in (200, 403), href
            for secret in ("hidden-one", ROOT, "fileReservedTime", "INFO", LOOKER[0]):
                assert secret not in answer.text, (href, secret)
        for path in (
            "/topics/hidden-one",
            "/topics/hidden-one/messages",
            "/users/small",
            "/groups/any",
            "/series?name=in",
        ):
            assert visitor.get(path).status_code in (403, 404), path
        assert "Get on the cluster" in visitor.page("/jobs")
        for action, values in (
            ("delete-topic", {"topic": "orders"}),
            ("set-config", {"option": "fileReservedTime=71"}),
        ):
            assert "no permission" in visitor.preview(action, **values).text


def test_masked_bodies(broker: BrokerProcess, tmp_path: Path) -> None:
    assert broker.name_server is not None
    with (
        ConsoleProcess(broker.name_server, tmp_path, "--mask-bodies") as console,
        console.visitor() as visitor,
    ):
        visitor.sign_in(ROOT, ROOT_PASSWORD)
        assert "secret body" not in visitor.page("/topics/orders/messages?key=k1")
        for path in ("/topics/orders/messages", "/dead-letters/any"):  # what is found would show it
            assert visitor.get(f"{path}?text=secret").status_code == 400


def test_forms_of_other_sites(console: ConsoleProcess) -> None:
    with console.visitor() as visitor, console.visitor() as other:
        visitor.sign_in(ROOT, ROOT_PASSWORD)
        other.sign_in(*READER)
        form = {"f.topic": "made-by-others", "step": "preview"}
        right = form | {"csrf": visitor.token()}
        for wrong in (form, form | {"csrf": other.token()}, form | {"csrf": "00" * 64}, form | {"csrf": "x"}):
            assert visitor.post("/actions/create-topic", data=wrong).status_code == 400
        for headers in (
            {"Origin": "https://evil.example"},
            {"Origin": "null"},
            {"Sec-Fetch-Site": "cross-site"},
        ):
            assert visitor.post("/actions/create-topic", data=right, headers=headers).status_code == 403
        kind = {"Content-Type": "text/plain"}
        of_form = {"Content-Type": "application/x-www-form-urlencoded"}
        assert visitor.post("/actions/create-topic", content="csrf=1", headers=kind).status_code == 400
        assert visitor.post("/actions/create-topic", data=right | {"step": "confirm"}).status_code == 400
        assert (
            visitor.post("/actions/create-topic", content=b"x" * (7 << 20), headers=of_form).status_code
            == 413
        )
        assert "made-by-others" not in visitor.page("/topics")


def test_an_address_that_others_reach_needs_users(tmp_path: Path) -> None:
    def started(broker: BrokerProcess) -> subprocess.CompletedProcess[str]:
        assert broker.name_server is not None
        words = ["--namesrv", "{}:{}".format(*broker.name_server), "--listen", "0.0.0.0:0"]
        return subprocess.run(
            [sys.executable, "-m", "firearrow.client.console", *words],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    with BrokerProcess(tmp_path / "store") as broker:
        ended = started(broker)
        assert ended.returncode == 2
        assert "the brokers have no users" in ended.stderr
        broker.stop()
        ended = started(broker)
        assert ended.returncode == 2
        assert "it is not known whether the brokers have users" in ended.stderr


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--listen", "..:80"), "'..' is not a machine's name"),
        (("--tls-cert", "missing.pem", "--tls-key", "missing.key"), "--tls-cert, --tls-key: No such file"),
        (("--tls-cert", __file__, "--tls-key", __file__), "--tls-cert, --tls-key: "),
    ],
)
def test_what_cannot_be_served(words: tuple[str, ...], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--listen", "127.0.0.1:0", *words]) == 2
    shown = capsys.readouterr()
    assert text in shown.err
    assert not shown.out  # it has not stated where it listens


def test_a_proxy_may_give_it_any_name_where_there_are_users(console: ConsoleProcess) -> None:
    with console.visitor() as visitor:
        answer = visitor.get("/topics?q=a%26b", headers={"Host": "console.example"})
        assert answer.status_code == 303
        assert answer.headers["location"] == "/sign-in?next=%2Ftopics%3Fq%3Da%2526b"
        visitor.headers["Host"] = "console.example"
        assert visitor.sign_in(*LOOKER).status_code == 303
        assert "there is no user nobody" in visitor.page("/users/nobody", 404)
        visitor.page("/topics/orders/producers", 403)  # a refusal lets the console look again
        assert visitor.get("/topics").status_code == 200


def test_users_open_it_to_others(broker: BrokerProcess, tmp_path: Path) -> None:
    assert broker.name_server is not None
    with ConsoleProcess(broker.name_server, tmp_path, "--listen", "0.0.0.0:0") as console:
        console.url = console.url.replace("0.0.0.0", "127.0.0.1")
        with console.visitor() as visitor:
            assert visitor.get("/topics", headers={"Host": "console.example"}).status_code == 303
