"""Attacks on users and signatures: unknown users without end, huge fields, and damaged files, which open no broker."""

import json
import random
import socket
from pathlib import Path

import pytest

from firearrow._native.store.confirm_offset import FILE_NAME, OFFSET
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.auth.request_rights import NEEDS_MAX
from firearrow.broker.auth.tables import AclTable, UserTable
from firearrow.broker.auth.user_access import SECRET_MODE
from firearrow.broker.base.errors import StartError
from firearrow.broker.tables.config_file import ConfigFile
from tests.auth.secured import SignedSocket, ask_ok, create_user, grant, options, secured
from tests.hostile.mutation import mutated
from tests.hostile.targets_access import ACLS, USERS
from tests.integration.test_transactions import COMMIT, end_ext, half_ext, half_of
from tests.support.client_socket import ClientSocket
from tests.support.fork_server import run_forked
from tests.support.requests import send_ext, topic_ext

STRANGERS = 10_000
GROWTH_KIB = 8 << 10
"""A name of 1 KiB for each, if it were kept, is more."""
WRONG_CONFIGURATION = 2


def test_many_unknown_users_are_not_remembered(tmp_path: Path) -> None:
    with secured(tmp_path / "store") as broker, SignedSocket(broker.address) as root:
        assert root.ask(RequestCode.GET_BROKER_CONFIG).code == 0
        before = broker.anonymous_kib()
        for first in range(0, STRANGERS, 1000):
            with socket.create_connection(broker.address, 10) as crowd:
                frames = [
                    RemotingCommand(
                        RequestCode.GET_BROKER_CONFIG,
                        {"AccessKey": f"{n}-" + "x" * 1000, "Signature": "A" * 28},
                        b"",
                        opaque=n,
                    ).encode()
                    for n in range(first, first + 1000)
                ]
                crowd.sendall(b"".join(frames))
        assert root.ask(RequestCode.GET_BROKER_CONFIG).code == 0
        assert broker.anonymous_kib() - before < GROWTH_KIB
        assert broker.log.read_text().count("is not found") == 1


@pytest.mark.parametrize("field", ["AccessKey", "Signature", "SecurityToken"])
@pytest.mark.parametrize("length", [65_000, 1_000_000])
def test_huge_fields_are_refused(tmp_path: Path, field: str, length: int) -> None:
    with secured(tmp_path / "store") as broker, SignedSocket(broker.address) as root:
        assert root.ask(RequestCode.GET_BROKER_CONFIG).code == 0
        ext = {"AccessKey": root.user, "Signature": "A" * 28} | {field: "A" * length}
        with ClientSocket(broker.address) as attacker:
            try:
                answer = attacker.ask(RequestCode.GET_BROKER_CONFIG, ext)
            except ConnectionError:
                assert length > 65_000  # a header that is too long closes the connection
            else:
                assert answer.code != 0
                assert len(answer.remark or "") < 2000
        assert root.ask(RequestCode.GET_BROKER_CONFIG).code == 0
        assert broker.stop() == 0
        log = broker.log.read_text()
        assert "Traceback" not in log
        assert len(log) < 10_000


def test_who_may_send_to_a_topic_may_not_send_to_every_lmq(tmp_path: Path) -> None:
    with (
        secured(tmp_path / "store", "enableLmq=true", "enableMultiDispatch=true") as broker,
        SignedSocket(broker.address) as root,
        SignedSocket(broker.address, "app", "secret88") as app,
    ):
        ask_ok(root, RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext("Chats"))
        create_user(root, "app", "secret88")
        grant(root, "app", "Topic:Chats", "Pub")
        grant(root, "app", "Topic:%LMQ%own*", "Pub")
        for names, refused in (("%LMQ%own1,%LMQ%own2", ""), ("%LMQ%own1,%LMQ%other", "%LMQ%other")):
            ext = send_ext("Chats", i=f"INNER_MULTI_DISPATCH\x01{names}\x02")
            answer = app.ask(RequestCode.SEND_MESSAGE_V2, ext, b"x")
            assert answer.code == (16 if refused else 0)
            assert f"Topic:{refused} " in f"{answer.remark}" or not refused


def test_rights_of_a_request_are_bounded(tmp_path: Path) -> None:
    """Those of one request are looked up in one go, while all others wait."""
    with secured(tmp_path / "store") as broker, SignedSocket(broker.address) as root:
        create_user(root, "app", "secret88")
        grant(root, "app", "*", "Sub")
        with SignedSocket(broker.address, "app", "secret88") as app:
            for topics, code in ((NEEDS_MAX - 1, 0), (NEEDS_MAX, 1)):
                group = {"groupName": "G", "subscriptionDataSet": [{"topic": f"t{n}"} for n in range(topics)]}
                heartbeat = {"clientID": "c", "consumerDataSet": [group]}
                answer = app.ask(RequestCode.HEART_BEAT, {}, json.dumps(heartbeat).encode())
                assert answer.code == code, answer.remark
            assert answer.remark == (
                f"the request needs more than {NEEDS_MAX} rights: name fewer topics and groups in it"
            )


@pytest.mark.parametrize(("name", "text"), [("users", USERS), ("acls", ACLS)])
def test_fuzzed_files_are_read_or_stop_the_start(tmp_path: Path, name: str, text: bytes) -> None:
    """Whatever the bytes: no other error, and no broker that continues with nothing, or with an older file."""
    dice = random.Random(name)
    file = ConfigFile(tmp_path / f"{name}.json", mode=SECRET_MODE, strict=True)
    refused = 0
    for _ in range(2000):
        table: UserTable | AclTable = UserTable(lambda: None) if name == "users" else AclTable(lambda: None)
        file.path.write_bytes(mutated(dice, text, [USERS, ACLS]))
        try:
            assert file.load(table.load)
        except StartError:
            refused += 1
            assert not list(table)
    assert refused > 1000


@pytest.mark.parametrize("name", ["users", "acls"])
@pytest.mark.parametrize("content", [b"", b"\0" * 100, b"null", b"[]", b'{"users":null,"acls":null}'])
def test_a_broker_with_a_damaged_file_does_not_start(tmp_path: Path, name: str, content: bytes) -> None:
    with secured(tmp_path / "store") as broker:
        assert broker.stop() == 0
    folder = tmp_path / "store" / "config"
    (folder / f"{name}.json").write_bytes(content)
    ports = "--listen", "127.0.0.1:0", "--namesrv-listen", "127.0.0.1:0"
    done = run_forked("broker", "--store", str(tmp_path / "store"), *options(), *ports)
    assert done.returncode != 0
    assert "ready" not in done.stdout
    assert f"{name}.json is {'damaged' if content else 'empty'}" in done.stderr + done.stdout


def test_a_foreign_half_message_that_is_not_confirmed_yet_cannot_be_ended_either(tmp_path: Path) -> None:
    """Nor read by sending it back: what readers do not see has a topic, too."""
    store = tmp_path / "store"
    with secured(store) as broker, SignedSocket(broker.address) as root:
        for topic in ("Own", "Foreign"):
            ask_ok(root, RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(topic))
        create_user(root, "app", "secret88")
        grant(root, "app", "Topic:Own", "All")
        grant(root, "app", "Group:*", "All")
        half = half_of(root.ask(RequestCode.SEND_MESSAGE_V2, half_ext("Foreign", "K"), b"paid"))
        assert broker.stop() == 0
    (store / FILE_NAME).write_bytes(OFFSET.pack(0))
    waits = ("brokerRole=SYNC_MASTER", "inSyncReplicas=2", "minInSyncReplicas=2")
    with secured(store, *waits) as broker, SignedSocket(broker.address, "app", "secret88") as app:
        ends = end_ext(half, COMMIT) | {"topic": "Own"}
        back = {"group": "G", "offset": half.physical_offset, "delayLevel": "0", "originTopic": "Own"}
        for code, ext in ((RequestCode.END_TRANSACTION, ends), (RequestCode.CONSUMER_SEND_MSG_BACK, back)):
            answer = app.ask(code, ext)
            assert answer.code == ResponseCode.NO_PERMISSION, answer.remark
            assert "the topic of this message" in (answer.remark or "")
            assert "Foreign" not in (answer.remark or "")
