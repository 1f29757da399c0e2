"""Users that are lost: the last Super user stays, and a lost file does not bring the first password back."""

import json
from pathlib import Path

import pytest

from firearrow._native.wire.codes import RequestCode
from tests.auth.secured import ROOT, ROOT_PASSWORD, SignedSocket, create_user, options, secured
from tests.support.broker_process import BrokerProcess, create_tester
from tests.support.fork_server import run_forked

CANNOT_START = 3


def update(root: SignedSocket, name: str, **info: str) -> str | None:
    """The remark of a refusal."""
    answer = root.ask(RequestCode.AUTH_UPDATE_USER, {"username": name}, json.dumps(info).encode())
    return answer.remark if answer.code else None


def test_the_last_super_user_stays(tmp_path: Path) -> None:
    with secured(tmp_path / "store") as broker, SignedSocket(broker.address) as root:
        create_user(root, "app", "word1234")
        create_user(root, "idle", "word1234", kind="Super")
        assert update(root, "idle", userStatus="disable") is None
        last = f"{ROOT} is the last Super user that is enabled: create another one first"
        deletion = RequestCode.AUTH_DELETE_USER, {"username": ROOT}
        assert root.ask(*deletion).remark == last
        assert update(root, ROOT, userStatus="disable") == last
        assert update(root, ROOT, userType="Normal") == last
        assert update(root, ROOT, userType="Normal", password="other-word") == last
        assert update(root, "app", password="other-word") is None
        assert update(root, "idle", userStatus="enable") is None
        assert root.ask(*deletion).code == 0
        with SignedSocket(broker.address, "idle", "word1234") as idle:
            assert str(update(idle, "idle", userType="Normal")).startswith("idle is the last Super user")


def refused(*arguments: str) -> str:
    ended = run_forked(*arguments)
    assert ended.returncode == CANNOT_START, ended
    return ended.stderr.splitlines()[-1]


def test_a_lost_file_does_not_bring_the_first_password_back(tmp_path: Path) -> None:
    store = tmp_path / "store"
    config = store / "config"
    with secured(store) as broker, SignedSocket(broker.address) as root:
        assert f"the Super user {ROOT} was created" in broker.log.read_text()
        assert update(root, ROOT, password="other-word") is None
        assert broker.stop() == 0
    with secured(store) as broker, SignedSocket(broker.address, ROOT, "other-word") as root:
        assert broker.log.read_text().count("was created") == 1
        assert root.ask(RequestCode.AUTH_LIST_USER).code == 0
        assert broker.stop() == 0
    (config / "users.json").rename(tmp_path / "users.json")
    start = "broker", "--store", str(store), "--listen", "127.0.0.1:0", "--namesrv-listen", "off", *options()
    assert "users.json is missing, but users.json.bak, acls.json show that there were users" in refused(
        *start
    )
    (config / "users.json.bak").unlink()
    assert "also delete acls.json" in refused(*start)
    (tmp_path / "users.json").rename(config / "users.json")
    with secured(store) as broker, SignedSocket(broker.address, ROOT, "other-word") as root:
        assert root.ask(RequestCode.AUTH_LIST_USER).code == 0
        assert broker.stop() == 0
    for lost in config.glob("*s.json*"):  # the way out
        if lost.name.startswith(("users", "acls")):
            lost.unlink()
    with secured(store) as broker, SignedSocket(broker.address, ROOT, ROOT_PASSWORD) as root:
        assert root.ask(RequestCode.AUTH_LIST_USER).code == 0


def test_users_without_their_switch_are_a_warning(tmp_path: Path) -> None:
    store, home = tmp_path / "store", tmp_path / "home"
    create_tester(store)
    (home / "conf").mkdir(parents=True)
    (home / "conf" / "plain_acl.yml").write_text("accounts: []\n")
    environment = {"ROCKETMQ_HOME": str(home)}
    with BrokerProcess(store, way=("fastPath=true",), environment=environment) as broker:
        text = broker.log.read_text()
        for path, switch in (("users.json", "authenticationEnabled"), ("plain_acl.yml", "aclEnable")):
            assert f"{path} has no effect, and anyone may do everything: set {switch}=true" in text


@pytest.mark.parametrize("left", ["users.json.bak", "acls.json", "acls.json.bak"])
def test_a_name_server_alone(tmp_path: Path, left: str) -> None:
    config = tmp_path / "namesrv.conf"
    pairs = options()[1::2]
    config.write_text("\n".join((*pairs, f"kvConfigPath={tmp_path / 'kvConfig.json'}")))
    (tmp_path / left).write_text("{}")
    line = refused("namesrv", "--listen", "127.0.0.1:0", "--config", str(config))
    assert f"users.json is missing, but {left} show" in line
