"""White lists of request codes, other users' source addresses, and Apache's class names."""

from pathlib import Path

from firearrow._native.wire.codes import RequestCode
from tests.auth.secured import SignedSocket, create_user, grant, secured

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
            assert app.ask(RUNTIME).remark == NO_USER  # a name alone gives no rights
            assert app.ask(RequestCode.GET_ALL_TOPIC_CONFIG).remark == "check signature failed."


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
            SignedSocket(broker.name_server, "") as nobody,
            SignedSocket(broker.name_server, "app", "app-word") as app,
        ):
            for code in (
                RequestCode.GET_ROUTEINFO_BY_TOPIC,
                RequestCode.REGISTER_BROKER,
                RequestCode.PUT_KV_CONFIG,
            ):
                assert nobody.ask(code, {"topic": "T"}).remark == NO_USER
            assert app.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"}).code == NO_PERMISSION
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
