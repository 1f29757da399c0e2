"""A slave's log: the whole of it, in pieces cut anywhere, checked before it is appended, a store at every moment."""

import json
import random
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from firearrow._native.wire.codes import RequestCode
from tests.replication.pairs import (
    SEGMENT,
    TOPIC,
    end_of,
    ha_client,
)
from tests.replication.scene import Scene
from tests.replication.sender import HEADER
from tests.support.command_line import here
from tests.support.eventually import eventually
from tests.support.requests import pull, read_queue, send, send_ext, topic_ext
from tests.support.stores import item


def verified(store: Path) -> None:
    here("store", "verify", str(store)).succeeded()


def test_a_fresh_slave_gets_the_whole_log_over_rolls(scene: Scene) -> None:
    scene.fill(2500)
    assert scene.end() > 2 * SEGMENT
    with scene.slave() as slave, slave.connect() as connection:
        scene.caught_up(connection)
        scene.equal()
        assert scene.sender.asked == [1]
        eventually(lambda: scene.sender.acks[-1:] == [scene.end()], what="the last acknowledgement")
        client = ha_client(connection)
        assert client["state"] == "following"
        assert client["maxOffset"] == scene.end()
        eventually(
            lambda: connection.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": TOPIC}).code == 0, what="the topic"
        )
        for queue in range(4):
            assert read_queue(connection, TOPIC, queue) == read_queue(scene.connection, TOPIC, queue)
        assert slave.stop() == 0
    verified(scene.store)


def test_an_empty_slave_connects_to_an_empty_master(scene: Scene) -> None:
    """A master that stores nothing before a slave is in sync would wait for ever."""
    with scene.slave() as slave, slave.connect() as connection:
        eventually(lambda: ha_client(connection)["state"] == "following", what="the connection")
        scene.fill(20)
        scene.caught_up(connection)
        scene.equal()
        assert scene.sender.asked == [0]


def test_a_held_pull_is_woken_by_what_comes(scene: Scene) -> None:
    scene.fill(4)
    with scene.slave() as slave, slave.connect() as connection:
        scene.caught_up(connection)
        eventually(
            lambda: connection.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": TOPIC}).code == 0, what="the topic"
        )
        opaque = connection.send_request(
            RequestCode.PULL_MESSAGE,
            {
                "consumerGroup": "CG",
                "topic": TOPIC,
                "queueId": "0",
                "queueOffset": "1",
                "maxMsgNums": "32",
                "sysFlag": "6",
                "commitOffset": "0",
                "suspendTimeoutMillis": "15000",
                "subscription": "*",
                "subVersion": "0",
            },
        )
        began = time.monotonic()
        scene.fill(4)
        answer = connection.answer_to(opaque)
        assert answer.code == 0
        assert answer.ext["suggestWhichBrokerId"] == "0"
        assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    "cuts",
    [
        pytest.param((0, 1, 8, HEADER.size, HEADER.size + 1), id="around each field"),
        pytest.param(range(HEADER.size + 2), id="each byte", marks=pytest.mark.long),
    ],
)
def test_a_slave_goes_on_where_a_connection_was_cut_in_a_header(scene: Scene, cuts: Sequence[int]) -> None:
    """The slave waits a second after each."""
    scene.fill(700)
    scene.sender.piece = 10_000
    scene.sender.cuts = [*cuts, HEADER.size + 9000]
    with scene.slave() as slave, slave.connect() as connection:
        scene.caught_up(connection, 60)
        scene.equal()
        assert len(scene.sender.asked) == len(cuts) + 2
        assert slave.stop() == 0
    verified(scene.store)


@pytest.mark.parametrize("piece", [1, 7, 100, SEGMENT])
def test_records_may_be_cut_anywhere(scene: Scene, piece: int) -> None:
    scene.fill(8 if piece == 1 else 1200)
    scene.sender.piece = piece
    if piece < 100:
        scene.limit = min(scene.end(), 3000 * piece)
        scene.limit = record_end(scene, scene.limit)
    with scene.slave() as slave, slave.connect() as connection:
        scene.caught_up(connection, 60)
        scene.equal()


def record_end(scene: Scene, limit: int) -> int:
    """The end of the last record that ends at or below an offset."""
    data = b"".join(path.read_bytes() for path in sorted((scene.master.store / "commitlog").iterdir()))
    at = 0
    while at + (size := int.from_bytes(data[at : at + 4])) <= limit and size:
        at += size
    return at


PARTS = {
    "size": 0,
    "magic": 4,
    "crc": 8,
    "queue id": 15,
    "queue offset": 27,
    "own offset": 34,
    "born host": None,
    "body": 90,
}


@pytest.mark.parametrize(
    "part",
    [
        pytest.param(part, marks=() if part in ("size", "own offset", "body") else pytest.mark.long)
        for part, at in PARTS.items()
        if at is not None
    ],
)
def test_a_turned_bit_is_not_appended_and_asked_for_again(scene: Scene, part: str) -> None:
    scene.fill(200)
    target = record_end(scene, scene.end() // 2)
    at = target + (PARTS[part] or 0)
    turned = threading.Event()

    def turn(offset: int, data: bytes) -> bytes:
        if turned.is_set() or not offset <= at < offset + len(data):
            return data
        turned.set()
        changed = bytearray(data)
        changed[at - offset] ^= 0x10
        return bytes(changed)

    scene.sender.change = turn
    with scene.slave() as slave, slave.connect() as connection:
        scene.caught_up(connection)
        assert turned.is_set()
        scene.equal()
        assert len(scene.sender.asked) >= 2
        assert target in scene.sender.asked
        assert slave.stop() == 0
    verified(scene.store)


def test_a_last_record_that_comes_too_long_is_asked_for_again(scene: Scene) -> None:
    """Nothing comes after it that would tell: all that the master has is here, and only heartbeats follow."""
    scene.fill(200)
    target = record_end(scene, scene.end() - 1)
    turned = threading.Event()

    def turn(offset: int, data: bytes) -> bytes:
        at = target + 2 - offset
        if turned.is_set() or not 0 <= at < len(data):
            return data
        turned.set()
        return data[:at] + bytes([data[at] ^ 0x40]) + data[at + 1 :]

    scene.sender.change = turn
    scene.sender.heartbeats = True
    with scene.slave(haHousekeepingInterval="600") as slave, slave.connect() as connection:
        scene.caught_up(connection)
        assert turned.is_set()
        scene.equal()


def test_a_master_that_only_sends_heartbeats_is_asked_again(scene: Scene) -> None:
    """As Apache's does of which the next file was deleted."""
    scene.fill(200)
    scene.limit = record_end(scene, scene.end() // 2)
    scene.sender.heartbeats = True
    with scene.slave(haHousekeepingInterval="600") as slave, slave.connect() as connection:
        scene.caught_up(connection)
        eventually(lambda: len(scene.sender.asked) > 2, what="that it asks again")
        assert scene.sender.asked[-1] == scene.limit
        eventually(lambda: "it sends no more of it" in slave.log.read_text(), what="the reason")
        scene.limit = None
        scene.caught_up(connection)
        scene.equal()


def test_a_record_that_always_comes_damaged_is_reported(scene: Scene) -> None:
    scene.fill(40)
    target = record_end(scene, scene.end() // 2)

    def turn(offset: int, data: bytes) -> bytes:
        at = target + 90
        if not offset <= at < offset + len(data):
            return data
        return data[: at - offset] + bytes([data[at - offset] ^ 1]) + data[at - offset + 1 :]

    scene.sender.change = turn
    with scene.slave() as slave, slave.connect() as connection:
        eventually(lambda: ha_client(connection)["state"] == "corrupted", what="the state corrupted")
        assert str(target) in str(ha_client(connection)["reason"])
        assert end_of(connection) == target
        assert max(scene.sender.acks, default=0) <= target
        scene.sender.change = lambda offset, data: data
        scene.caught_up(connection)
        eventually(lambda: ha_client(connection)["state"] == "following", what="the state following")
        scene.equal()


@pytest.mark.parametrize("fault", ["jump", "negative size", "too large"])
def test_a_frame_that_cannot_be_closes_the_connection(scene: Scene, fault: str) -> None:
    scene.fill(100)
    bad = threading.Event()

    def spoil(offset: int, frame: bytes) -> bytes:
        if offset <= 1 or bad.is_set():
            return frame
        bad.set()
        size = len(frame) - HEADER.size
        header = {
            "jump": HEADER.pack(offset + 8, size),
            "negative size": HEADER.pack(offset, -1),
            "too large": HEADER.pack(offset, SEGMENT + 1),
        }[fault]
        return header + frame[HEADER.size :]

    scene.sender.piece = 4000
    scene.sender.frame = spoil
    with scene.slave() as slave, slave.connect() as connection:
        scene.caught_up(connection)
        assert bad.is_set()
        scene.equal()


def test_a_killed_slave_is_a_store_at_every_moment(scene: Scene) -> None:
    scene.fill(3000)
    scene.sender.piece = 500
    pick = random.Random(7)
    for _ in range(3):
        with scene.slave() as slave, slave.connect() as connection:
            before = end_of(connection)
            if before == scene.end():
                break
            eventually(lambda before=before: end_of(connection) > before, what="some progress")  # type: ignore[misc]
            time.sleep(pick.random() / 4)
            slave.kill()
        ended = folder_end(scene.store)
        assert ended > 0
        with scene.slave() as slave, slave.connect() as connection:
            assert end_of(connection) >= ended
            assert "truncated" not in slave.log.read_text()
            assert "damaged from" not in slave.log.read_text()
            assert slave.stop() == 0
        verified(scene.store)
    with scene.slave() as slave, slave.connect() as connection:
        scene.caught_up(connection, 60)
        scene.equal()


def folder_end(store: Path) -> int:
    """The end of the last whole record in the folder, after which there are zeros only."""
    data = b"".join(path.read_bytes() for path in sorted((store / "commitlog").iterdir()))
    at = 0
    while at + 4 <= len(data) and (size := int.from_bytes(data[at : at + 4])):
        at += size
    assert not data[at:].strip(b"\0")
    return at


def test_sync_flush_acknowledges_what_is_synced(scene: Scene) -> None:
    scene.fill(500)
    with scene.slave(flushDiskType="SYNC_FLUSH") as slave, slave.connect() as connection:
        scene.caught_up(connection)
        eventually(lambda: scene.sender.acks[-1:] == [scene.end()], what="the last acknowledgement")
        eventually(
            lambda: connection.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": TOPIC}).code == 0, what="the topic"
        )
        assert read_queue(connection, TOPIC, 0) == read_queue(scene.connection, TOPIC, 0)
        scene.equal()


def test_batch_queues_are_followed(tmp_path: Path) -> None:
    """Also the messages that come before the topic does, which have plain queues until then."""
    sizes = {"mapperFileSizeBatchConsumeQueue": "460"}
    scene = Scene(tmp_path, **sizes)
    try:
        topic = topic_ext("Batches", 1) | {"attributes": "+queue.type=BatchCQ"}
        assert scene.connection.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic).code == 0
        batch = send_ext("Batches", i="UNIQ_KEY\x01u\x02") | {"m": "true"}

        def write() -> None:
            for _ in range(12):
                assert send(scene.connection, "Batches", b"alone").code == 0
                items = item(b"x") + item(b"y")
                assert scene.connection.ask(RequestCode.SEND_BATCH_MESSAGE, batch, items).code == 0
            scene.fill(1)

        write()
        with scene.slave(**sizes) as slave, slave.connect() as connection:
            scene.caught_up(connection)
            write()
            scene.caught_up(connection)
            queue = {"topic": "Batches", "queueId": "0"}
            eventually(
                lambda: connection.ask(RequestCode.GET_MAX_OFFSET, queue).ext["offset"] == "72",
                what="the queue",
            )
            asked = {"topic": "Batches"}
            eventually(
                lambda: connection.ask(RequestCode.GET_TOPIC_CONFIG, asked).code == 0, what="the topic"
            )
            for offset in (0, 1, 2, 40, 71):
                ours, theirs = (pull(each, "Batches", offset) for each in (scene.connection, connection))
                assert (ours.code, ours.body) == (theirs.code, theirs.body)
            assert slave.stop() == 0
        assert (scene.store / "batchconsumequeue" / "Batches").is_dir()
        assert not (scene.store / "consumequeue" / "Batches").exists()
        verified(scene.store)
    finally:
        scene.close()


def test_lmqs_of_messages_are_followed(tmp_path: Path) -> None:
    lmqs = {"enableLmq": "true", "enableMultiDispatch": "true"}
    scene = Scene(tmp_path, **lmqs)
    try:
        scene.fill(4)
        named = send_ext(TOPIC, i="INNER_MULTI_DISPATCH\x01%LMQ%a,%LMQ%b\x02")
        for _ in range(3):
            assert scene.connection.ask(RequestCode.SEND_MESSAGE_V2, named, b"lmq").code == 0
        scene.fill(4)
        with scene.slave(**lmqs) as slave, slave.connect() as connection:
            scene.caught_up(connection)
            for lmq in ("%LMQ%a", "%LMQ%b"):
                queue = {"topic": lmq, "queueId": "0"}
                assert connection.ask(RequestCode.GET_MAX_OFFSET, queue).ext["offset"] == "3"
                assert len(read_queue(connection, lmq, 0)) == 3
            assert slave.stop() == 0
        verified(scene.store)
    finally:
        scene.close()


def test_a_lite_topic_that_was_deleted_begins_again_at_the_slave(tmp_path: Path) -> None:
    lmqs = {"enableLmq": "true", "enableMultiDispatch": "true"}
    scene = Scene(tmp_path, **lmqs)
    try:
        scene.fill(4)
        queue = f"%LMQ%${TOPIC}$a"
        named = send_ext(TOPIC, i=f"INNER_MULTI_DISPATCH\x01{queue}\x02")
        for number in range(5):
            assert scene.connection.ask(RequestCode.SEND_MESSAGE_V2, named, b"%d" % number).code == 0
            if number == 1:
                deleted = scene.connection.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": queue})
                assert deleted.code == 0
        scene.fill(4)
        with scene.slave(**lmqs) as slave, slave.connect() as connection:
            scene.caught_up(connection)
            status = json.loads(connection.ask(RequestCode.GET_STATUS).body)["replication"]
            assert status["skippedLmqs"] == 0
            assert [record.body for record in read_queue(connection, queue, 0)] == [b"2", b"3", b"4"]
            assert slave.stop() == 0
    finally:
        scene.close()


def test_lmqs_that_do_not_continue_are_counted_and_logged_once(tmp_path: Path) -> None:
    """The master deleted an LMQ; the slave, which began later, has the entries before it."""
    lmqs = {"enableLmq": "true", "enableMultiDispatch": "true"}
    scene = Scene(tmp_path, **lmqs)
    try:
        scene.fill(4)
        named = send_ext(TOPIC, i="INNER_MULTI_DISPATCH\x01%LMQ%a,%LMQ%b\x02")
        for number in range(5):
            assert scene.connection.ask(RequestCode.SEND_MESSAGE_V2, named, b"lmq").code == 0
            if number == 1:
                deleted = {"topic": "%LMQ%a"}
                assert scene.connection.ask(RequestCode.DELETE_TOPIC_IN_BROKER, deleted).code == 0
        scene.fill(4)
        with scene.slave(**lmqs) as slave, slave.connect() as connection:
            scene.caught_up(connection)
            status = json.loads(connection.ask(RequestCode.GET_STATUS).body)["replication"]
            assert status["skippedLmqs"] == 3
            assert slave.log.read_text().count("is not in the LMQs that it names") == 1
            scene.equal()
    finally:
        scene.close()
