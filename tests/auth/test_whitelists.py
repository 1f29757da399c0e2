"""White lists of request codes, other users' source addresses, and Apache's class names."""

import json
import time
from pathlib import Path

from firearrow._native.wire.codes import RequestCode
from firearrow.broker.auth.failed_logins import FREE
from tests.auth.secured import ROOT, ROOT_PASSWORD, SignedSocket, ask_ok, create_user, grant, secured

CONFIG, RUNTIME = RequestCode.GET_BROKER_CONFIG, RequestCode.GET_BROKER_RUNTIME_INFO
NO_PERMISSION, NO_USER = 16, "username cannot be null."


def test_codes_in_both_lists_are_open(tmp_path: Path) -> None:
    lists = "authenticationWhitelist=26, 28", "authorizationWhitelist=26"
    with secured(tmp_path / "store", *lists) as broker, SignedSocket(broker.address) as root:
        create_user(root, "app", "app-word")
        with (
            SignedSocket(broker.address, "") as nobody,
            SignedSocket(broker.address, "app", "app-word") as app,
        ):
            assert nobody.ask(CONFIG).code == 0
            assert (nobody.ask(RUNTIME).code, nobody.ask(RUNTIME).remark) == (NO_PERMISSION, NO_USER)
            assert app.ask(CONFIG).code == 0
            assert app.ask(RUNTIME).code == NO_PERMISSION
            assert root.ask(RUNTIME).code == 0
            app.password = "wrong"
            assert app.ask(RUNTIME).remark == "check signature failed."  # a name alone gives no rights
            assert app.ask(RequestCode.GET_ALL_TOPIC_CONFIG).remark == "check signature failed."


def test_a_name_alone_makes_nobody_a_super_user(tmp_path: Path) -> None:
    """Not even if the codes that change users are open to all: the list does not say who a user is."""
    codes = ",".join(str(int(code)) for code in (RequestCode.AUTH_CREATE_USER, RequestCode.AUTH_GET_USER))
    lists = f"authenticationWhitelist={codes}", f"authorizationWhitelist={codes}"
    name, info = {"username": "mine"}, {"username": "mine", "password": "p", "userType": "Super"}
    with (
        secured(tmp_path / "store", *lists) as broker,
        SignedSocket(broker.address, ROOT, "guess") as guesser,
        SignedSocket(broker.address) as root,
    ):
        answer = guesser.ask(RequestCode.AUTH_CREATE_USER, name, json.dumps(info).encode())
        assert (answer.code, answer.remark) == (1, "The super user can only be create by super user")
        shown = guesser.ask(RequestCode.AUTH_GET_USER, {"username": ROOT})
        assert ROOT_PASSWORD.encode() not in shown.body
        ask_ok(root, RequestCode.AUTH_CREATE_USER, name, info)
        assert ROOT_PASSWORD.encode() in ask_ok(root, RequestCode.AUTH_GET_USER, {"username": ROOT}).body


def test_passwords_are_guessed_slowly_with_codes_that_need_no_login(tmp_path: Path) -> None:
    with (
        secured(tmp_path / "store", "authenticationWhitelist=28") as broker,
        SignedSocket(broker.address, password="guess") as guesser,
    ):
        begin = time.monotonic()
        for _ in range(FREE + 3):
            assert guesser.ask(RUNTIME).code == NO_PERMISSION
        assert time.monotonic() - begin > 0.6  # 0.1, 0.2 and 0.4 s


def test_without_authorization_every_user_may_do_everything(tmp_path: Path) -> None:
    with secured(tmp_path / "store", authorization=False) as broker, SignedSocket(broker.address) as root:
        create_user(root, "app", "app-word")
        with (
            SignedSocket(broker.address, "app", "app-word") as app,
            SignedSocket(broker.address, "") as nobody,
        ):
            assert app.ask(CONFIG).code == 0
            assert nobody.ask(CONFIG).remark == NO_USER


def test_rules_for_addresses(tmp_path: Path) -> None:
    with secured(tmp_path / "store") as broker, SignedSocket(broker.address) as root:
        create_user(root, "app", "app-word")
        with SignedSocket(broker.address, "app", "app-word") as app:
            grant(root, "app", "Cluster:*", "Get", sources=("10.0.0.0/8",))
            assert app.ask(CONFIG).code == NO_PERMISSION
            grant(root, "app", "Cluster:*", "Get", sources=("10.0.0.0/8", "127.0.0.0/24"))
            assert app.ask(CONFIG).code == 0


def test_the_name_server_is_checked_too(tmp_path: Path) -> None:
    with secured(tmp_path / "store") as broker, SignedSocket(broker.address) as root:
        create_user(root, "app", "app-word")
        assert broker.name_server is not None
        with (
            SignedSocket(broker.name_server, "") as anonymous,
            SignedSocket(broker.name_server, "app", "app-word") as app,
        ):
            for code in (RequestCode.REGISTER_BROKER, RequestCode.PUT_KV_CONFIG):
                assert anonymous.ask(code, {"topic": "T"}).remark == NO_USER
            for asker in (anonymous, app):  # one queue of this broker, which refuses the request itself
                route = json.loads(asker.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"}).body)
                assert [queue["writeQueueNums"] for queue in route["queueDatas"]] == [1]
            assert app.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"}).code == 0
            assert app.ask(RequestCode.REGISTER_BROKER).code == NO_PERMISSION


def test_users_and_rules_outlive_the_broker(tmp_path: Path) -> None:
    with secured(tmp_path / "store") as broker, SignedSocket(broker.address) as root:
        create_user(root, "app", "app-word")
        grant(root, "app", "Cluster:*", "Get")
        broker.kill()
    with secured(tmp_path / "store") as broker, SignedSocket(broker.address, "app", "app-word") as app:
        assert app.ask(CONFIG).code == 0
        assert app.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"traceOn=true").code == NO_PERMISSION
    files = {
        path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "store" / "config").glob("*s.json*")
    }
    assert {files[name] for name in ("users.json", "acls.json")} == {0o600}
