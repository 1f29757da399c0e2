"""Pending work whose records are not confirmed yet, after a kill or a promotion: none is done twice, and no decision or
acknowledgement is refused. The log is written first; then `confirmOffset` says how much of it readers could see."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from firearrow._native.store.confirm_offset import FILE_NAME, OFFSET
from firearrow._native.store.log.record import Record
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow.client.store import CommitLog
from tests.integration import pops
from tests.integration.test_transactions import COMMIT, HALF, end, prepare
from tests.replication.raw_slave import Master, RawSlave
from tests.replication.test_sync import caught_up, set_option, shown
from tests.support.client_socket import ClientSocket
from tests.support.eventually import eventually
from tests.support.requests import pull, pull_ext, read_queue, records, send, send_ext

QUICK = {"timerPrecisionMs": 100, "reviveInterval": 100, "brokerName": "b"}
WAITS = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": 2, "minInSyncReplicas": 2}
RETRY = f"%RETRY%{pops.GROUP}_T"


def hide(store: Path, confirmed: int) -> None:
    (store / FILE_NAME).write_bytes(OFFSET.pack(confirmed))


def stored(store: Path, topic: str) -> list[Record]:
    with CommitLog.open_readonly(store / "commitlog") as log:
        return [record for record in log.records() if record.topic.startswith(topic)]


def end_of(record: Record) -> int:
    return record.physical_offset + record.size


@contextmanager
def all_confirmed(master: Master) -> Iterator[RawSlave]:
    with master.slave() as slave:
        caught_up(master, slave)
        yield slave


def revived(connection: ClientSocket) -> list[bytes]:
    known = connection.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": RETRY}).code == 0
    return [record.body for record in read_queue(connection, RETRY, 0)] if known else []


def test_a_delayed_message_whose_copy_readers_do_not_see_is_not_delivered_again(tmp_path: Path) -> None:
    """More of them than one slice has, so that some are compared after the start."""
    store, settings, count = tmp_path / "store", {"messageDelayLevel": "1s"}, 70
    with Master(store, **settings) as master, master.connect() as client:
        for number in range(count):
            ext = send_ext("T", i=f"DELAY\x011\x02UNIQ_KEY\x01U{number}\x02")
            assert client.ask(RequestCode.SEND_MESSAGE_V2, ext, b"delayed").code == 0
        copies = master.written()
        eventually(lambda: shown(client) == count)
        assert master.stop() == 0
    # as at a slave that is promoted: its master delivered them before its progress was copied
    (store / "config" / "delayOffset.json").write_text(json.dumps({"offsetTable": {"1": 0}}))
    (store / "config" / "followedLog.json").write_text(json.dumps({"until": None}))
    hide(store, copies)
    with Master(store, **settings, **WAITS) as master, master.connect() as client:
        time.sleep(1)
        assert shown(client) == 0
        with all_confirmed(master):
            assert shown(client) == count
            time.sleep(0.5)
            assert shown(client) == count


def test_a_message_whose_acknowledgement_readers_do_not_see_does_not_come_back(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with Master(store, **QUICK | {"reviveInterval": 60_000}) as master, master.connect() as client:
        for number in range(3):
            assert send(client, "T", b"%d" % number).code == 0
        popped = pops.pop(client, "T", invisibleTime="2000")
        for record in pops.records(popped)[:2]:
            assert pops.ack(client, popped, record).code == 0
        before = master.written()
        eventually(
            lambda: master.written() >= before + 1200
        )  # the check point and two acknowledgements were due
        master.kill()
    [check_point, _, _] = stored(store, "rmq_sys_REVIVE_LOG_")
    hide(store, end_of(check_point))
    with Master(store, **QUICK, **WAITS) as master, master.connect() as client:
        time.sleep(5)  # it is settled 4 s after it was due, at the earliest
        with all_confirmed(master) as slave:

            def come_back() -> list[bytes]:
                slave.copy(master.written())
                return revived(client)

            eventually(lambda: come_back() == [b"2"])
            time.sleep(0.5)
            assert come_back() == [b"2"]


def test_a_message_that_readers_do_not_see_any_more_can_be_acknowledged(tmp_path: Path) -> None:
    """Its consumer has it from the former master."""
    store = tmp_path / "store"
    with Master(store, **QUICK) as master, master.connect() as client:
        assert send(client, "T", b"0").code == 0
        assert send(client, "T", b"1").code == 0
        popped = pops.pop(client, "T", invisibleTime="3000")
        master.kill()
    hide(store, 0)
    with Master(store, **QUICK, **WAITS, slaveTimeout=100) as master, master.connect() as client:
        first, second = pops.records(popped)
        assert pops.ack(client, popped, first).code == 0
        ext = pops.ack_ext(popped, second) | {"invisibleTime": "60000"}
        assert client.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, ext).code == 0
        past = pops.ack_ext(popped, second) | {"offset": "3"}
        assert client.ask(RequestCode.ACK_MESSAGE, past).code != 0


def test_a_half_message_that_readers_do_not_see_can_be_decided(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with Master(store) as master, master.connect() as client:
        assert send(client, "T", b"before").code == 0  # a topic without a message does not outlive a kill
        half = prepare(client, "T", b"paid")
        master.kill()
    hide(store, 0)
    with Master(store, **WAITS, slaveTimeout=100) as master, master.connect() as client:
        assert end(client, half, COMMIT).code == 0
        assert shown(client, HALF) == 0
        with all_confirmed(master):
            assert [final.body for final in read_queue(client, "T", 1)] == [b"paid"]


def test_held_pulls_hear_of_it_when_readers_may_see_what_is_not_confirmed(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with Master(store) as master, master.connect() as client:
        assert send(client, "T", b"0").code == 0
        master.kill()
    hide(store, 0)
    with Master(store, **WAITS) as master, master.connect() as client, master.connect() as other:
        assert pull(other, "T").code != 0
        ext = pull_ext("T", sysFlag="6", suspendTimeoutMillis="15000")
        held = client.send_request(RequestCode.PULL_MESSAGE, ext)
        time.sleep(0.2)
        set_option(other, b"readUnconfirmedMessages=true")
        began = time.monotonic()
        assert client.answer_to(held).code == 0
        assert time.monotonic() - began < 3


def test_a_message_that_readers_do_not_see_any_more_can_be_sent_back(tmp_path: Path) -> None:
    """Its consumer has it from the former master, and could not process it."""
    store = tmp_path / "store"
    group = {"groupName": "CG", "consumeEnable": True, "retryQueueNums": 1, "retryMaxTimes": 16}
    with Master(store) as master, master.connect() as client:
        assert send(client, "T", b"0").code == 0
        body = json.dumps(group).encode()
        assert client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body).code == 0
        [record] = records(pull(client, "T").body)
        assert master.stop() == 0
    hide(store, 0)
    with Master(store, **WAITS, slaveTimeout=100) as master, master.connect() as client:
        ext = {"group": "CG", "offset": str(record.physical_offset), "delayLevel": "-1", "originTopic": "T"}
        assert client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, ext).code == 0
        with all_confirmed(master):
            eventually(lambda: shown(client) == 1)
            [dead] = read_queue(client, "%DLQ%CG", 0)
            assert dead.body == b"0"


def test_a_reader_of_a_topic_that_was_created_again_stays_where_it_is(tmp_path: Path) -> None:
    """Past what is visible, but not past the queue's end: it is no reader of the queue that was deleted."""
    store = tmp_path / "store"
    with Master(store) as master, master.connect() as client:
        for number in range(10):
            assert send(client, "T", b"%d" % number).code == 0
        assert client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"}).code == 0
        for number in range(5):
            assert send(client, "T", b"%d" % number).code == 0
        assert master.stop() == 0
    hide(store, end_of(stored(store, "T")[-3]))
    with Master(store, **WAITS) as master, master.connect() as client:
        assert shown(client) == 3
        assert pull(client, "T", 5).code == ResponseCode.PULL_NOT_FOUND
        answer = pull(client, "T", 8, consumerGroup="Old")
        assert (answer.code, answer.ext["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "0")
