"""A name server alone where users have to log in: brokers register with their keys, clients need a right."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from firearrow._native.wire.codes import RequestCode
from tests.auth.secured import INITIAL, SignedSocket, ask_ok, create_user, grant
from tests.auth.test_outgoing import INNER
from tests.support.broker_process import BrokerProcess
from tests.support.eventually import eventually
from tests.support.fork_server import ForkedCommand, run_forked

COMMAND = str(Path(sys.executable).with_name("firearrow"))
NO_PERMISSION = 16
CONFIG = """\
authenticationEnabled=true
authorizationEnabled=true
initAuthenticationUser={initial}
authenticationWhitelist={white}
authorizationWhitelist={white}
kvConfigPath={folder}/kvConfig.json
"""


@contextmanager
def name_server(folder: Path, white: str = "", more: str = "") -> Iterator[tuple[str, int]]:
    """Its address. `more`: further lines of its configuration."""
    config = folder / "namesrv.conf"
    config.write_text(CONFIG.format(initial=INITIAL, folder=folder, white=white) + more)
    command = [COMMAND, "namesrv", "--listen", "127.0.0.1:0", "--config", str(config)]
    with ForkedCommand(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            found = re.search(r"name server ([\d.]+):(\d+)", process.stdout.readline())
            assert found
            yield found[1], int(found[2])
            process.terminate()
            assert process.wait(10) == 0
        finally:
            process.kill()


@pytest.fixture
def names(tmp_path: Path) -> Iterator[tuple[str, int]]:
    with name_server(tmp_path) as address:
        yield address


def test_a_broker_registers_with_its_keys_only(names: tuple[str, int], tmp_path: Path) -> None:
    at = "{}:{}".format(*names)

    def broker(name: str, *more: str) -> BrokerProcess:
        pairs = (
            "authenticationEnabled=true",
            f"initAuthenticationUser={INITIAL}",
            f"brokerName={name}",
            *more,
        )
        arguments = [word for pair in pairs for word in ("--set", pair)]
        return BrokerProcess(tmp_path / name, *arguments, "--namesrv", at, "--namesrv-listen", "off")

    with SignedSocket(names) as root, broker("with", INNER % "12345678"), broker("without") as refused:
        eventually(lambda: b'"with"' in root.ask(RequestCode.GET_BROKER_CLUSTER_INFO).body)
        eventually(lambda: "set innerClientAuthenticationCredentials" in refused.log.read_text(), 10)
        assert b'"without"' not in root.ask(RequestCode.GET_BROKER_CLUSTER_INFO).body


def test_each_client_needs_a_user_and_a_right(names: tuple[str, int], tmp_path: Path) -> None:
    route = RequestCode.GET_ROUTEINFO_BY_TOPIC
    with ExitStack() as stack:
        root, nobody, app = (
            stack.enter_context(SignedSocket(names, *user))
            for user in (("rocketmq", "12345678"), ("", ""), ("app", "secret88"))
        )
        answer = nobody.ask(route, {"topic": "T"})
        assert (answer.code, answer.remark) == (NO_PERMISSION, "username cannot be null.")
        assert app.ask(route, {"topic": "T"}).remark == "User:app is not found."
        create_user(root, "app", "secret88")
        answer = app.ask(route, {"topic": "T"})
        assert (answer.code, answer.remark) == (
            NO_PERMISSION,
            "User:app has no permission to access Topic:T from 127.0.0.1, no matched policies.",
        )
        grant(root, "app", "Topic:T", "Sub")
        assert app.ask(route, {"topic": "T"}).code == 17  # there is no such topic
        for code in (
            RequestCode.REGISTER_BROKER,
            RequestCode.PUT_KV_CONFIG,
            RequestCode.UPDATE_NAMESRV_CONFIG,
        ):
            assert app.ask(code, {"clusterName": "c"}).code == NO_PERMISSION
        app.password = "wrong"
        assert app.ask(route, {"topic": "T"}).remark == "check signature failed."
    users = tmp_path / "users.json"
    assert [user["username"] for user in json.loads(users.read_text())["users"]] == ["app", "rocketmq"]
    assert users.stat().st_mode & 0o077 == 0


def test_users_are_kept_and_codes_can_be_open(tmp_path: Path) -> None:
    with name_server(tmp_path) as names, SignedSocket(names) as root:
        create_user(root, "app", "secret88", "Super")
    with name_server(tmp_path, white="105") as names, SignedSocket(names, "app", "secret88") as app:
        ask_ok(app, RequestCode.GET_BROKER_CLUSTER_INFO, {})
        app.user = ""
        assert app.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"}).code == 17
        assert app.ask(RequestCode.GET_BROKER_CLUSTER_INFO).code == NO_PERMISSION


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("authorizationEnabled=true\n", "needs authenticationEnabled=true"),
        ("authEnabled=true\n", "is not a key of this server: write authenticationEnabled"),
        ("aclEnable=true\n", "aclEnable asks for access control, but is not a key of this server"),
        ("authenticationEnabled=true\ninitAuthenticationUser=root\n", "initAuthenticationUser must be"),
    ],
)
def test_protection_that_cannot_take_effect_ends_the_start(tmp_path: Path, text: str, wanted: str) -> None:
    config = tmp_path / "namesrv.conf"
    config.write_text(text)
    done = run_forked("namesrv", "--listen", "127.0.0.1:0", "--config", str(config))
    assert done.returncode == 2
    assert wanted in done.stderr
