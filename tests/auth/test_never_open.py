"""A configuration that sounds like security never starts an open server: exit code 2, and the key to write."""

from pathlib import Path

import pytest

from firearrow._native.wire.codes import RequestCode
from tests.support.broker_process import BrokerProcess
from tests.support.fork_server import run_forked

WRONG_USAGE = 2
OPEN = {
    "requireLogin=true": "write authenticationEnabled",
    "enableSSL=true": "write tls.server.mode",
    "ipWhitelist=10.0.0.1": "write authorizationEnabled",
    "allowAnonymous=false": "write authenticationEnabled",
    "authenticationWhitelist=10": "authenticationEnabled=true",
    "authAuditLog=/tmp/audit": "authenticationEnabled=true",
}
OF_A_BROKER = {
    "haSecret=abc": "at least 16",
    "rocketmq.acl.plain.file=/etc/plain_acl.yml": "aclEnable=true",
    "tls.enable=true": "set tls.server.certPath",
}


def refusal(command: str, *arguments: str) -> str:
    """What it prints before it ends with exit code 2."""
    ended = run_forked(command, *arguments)
    assert ended.returncode == WRONG_USAGE, ended
    assert ended.stdout == ""
    return ended.stderr.splitlines()[-1]


@pytest.mark.parametrize("pair", [*OPEN, *OF_A_BROKER])
def test_a_broker(tmp_path: Path, pair: str) -> None:
    key, meant = pair.partition("=")[0], (OPEN | OF_A_BROKER)[pair]
    store = "--store", str(tmp_path / "store"), "--listen", "127.0.0.1:0", "--namesrv-listen", "off"
    config = tmp_path / "broker.conf"
    config.write_text(f"{pair}\n")
    for arguments in (("--set", pair), ("--config", str(config))):
        line = refusal("broker", *store, *arguments)
        assert key in line, line
        assert meant in line, line
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("pair", OPEN)
def test_a_name_server(tmp_path: Path, pair: str) -> None:
    config = tmp_path / "namesrv.conf"
    config.write_text(f"{pair}\n")
    line = refusal("namesrv", "--listen", "127.0.0.1:0", "--config", str(config))
    assert pair.partition("=")[0] in line, line
    assert OPEN[pair] in line, line


def test_changes_at_run_time(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "store") as broker:
        with broker.connect() as client:
            for pair in OPEN:
                answer = client.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, pair.encode())
                assert answer.code != 0, pair
                assert pair.partition("=")[0] in str(answer.remark)
        with broker.connect_name_server() as client:
            for pair in OPEN:
                assert client.ask(RequestCode.UPDATE_NAMESRV_CONFIG, {}, pair.encode()).code != 0, pair
