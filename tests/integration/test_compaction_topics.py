"""Compaction topics, by raw frames: keys, pulls with gaps, POP, retention, deletion, restarts and kills."""

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from firearrow._native.protocol import fastjson
from firearrow._native.store.log.record import Record
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.maintenance.verify import verify
from tests.integration.pops import pop
from tests.support.broker_process import BrokerProcess
from tests.support.client_socket import ClientSocket
from tests.support.command_line import here
from tests.support.eventually import eventually
from tests.support.requests import SUBSCRIPTION, SUSPEND, pull, pull_ext, send_ext, topic_ext
from tests.support.stores import item, split

SMALL = {
    "compactionMappedFileSize": "4096",
    "compactionCqMappedFileSize": "460",
    "compactionScheduleInternal": "100",
    "mappedFileSizeCommitLog": "65536",
    "mappedFileSizeConsumeQueue": "2000",
    "fileReservedTime": "0",
    "deleteCommitLogFilesInterval": "1",
    "cleanResourceInterval": "100",
}
TOPIC = "C"


def broker_on(store: Path, **more: str) -> BrokerProcess:
    settings = SMALL | more
    return BrokerProcess(
        store, *(word for key, text in settings.items() for word in ("--set", f"{key}={text}"))
    )


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with broker_on(tmp_path / "store") as broker:
        yield broker


def create(connection: ClientSocket, topic: str = TOPIC, **more: str) -> RemotingCommand:
    ext = topic_ext(topic, 1) | {"attributes": "+cleanup.policy=COMPACTION"} | more
    return connection.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, ext)


def send(connection: ClientSocket, key: str | None, body: bytes, **more: str) -> RemotingCommand:
    properties = ({} if key is None else {"KEYS": key}) | more
    text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
    return connection.ask(RequestCode.SEND_MESSAGE_V2, send_ext(TOPIC, i=text), body)


def fill(connection: ClientSocket, first: int, count: int, keys: int = 7) -> None:
    for n in range(first, first + count):
        assert send(connection, f"k{n % keys}", b"%d" % n, TAGS=f"t{n % 2}").code == 0


def read_all(connection: ClientSocket, offset: int = 0) -> list[Record]:
    found: list[Record] = []
    answer = pull(connection, TOPIC, offset)
    while answer.code == 0:
        found += split(answer.body)
        assert int(answer.ext["minOffset"]) <= found[0].queue_offset
        answer = pull(connection, TOPIC, int(answer.ext["nextBeginOffset"]))
    assert answer.code == ResponseCode.PULL_NOT_FOUND, answer.remark
    return found


def position(store: Path) -> int:
    try:
        return int(
            fastjson.loads((store / "compaction/position-checkpoint").read_bytes())["queueOffsetMap"][
                f"{TOPIC}_0"
            ]
        )
    except FileNotFoundError:
        return -1


def await_compaction(store: Path, offset: int) -> int:
    """Up to which offset the newest messages are left, at least this one."""
    eventually(lambda: position(store) >= offset, 20)
    return position(store)


def newest(numbers: range, keys: int, until: int) -> list[int]:
    last = {n % keys: n for n in numbers if n <= until}
    return sorted({*last.values(), *(n for n in numbers if n > until)})


def offset(connection: ClientSocket, code: int, **more: str) -> int:
    return int(connection.ask(code, {"topic": TOPIC, "queueId": "0", **more}).ext["offset"])


def test_a_message_needs_a_key(broker: BrokerProcess) -> None:
    with broker.connect() as client:
        assert create(client).code == 0
        for key in (None, "", "  "):
            for _ in range(2):
                answer = send(client, key, b"x")
                assert (answer.code, answer.remark) == (
                    ResponseCode.MESSAGE_ILLEGAL,
                    "Required message key is missing",
                )
        for second, code in ((b"", ResponseCode.MESSAGE_ILLEGAL), (b"KEYS\x01b\x02", 0)):
            body = item(b"1", b"KEYS\x01a\x02") + item(b"2", second)
            answer = client.ask(RequestCode.SEND_BATCH_MESSAGE, send_ext(TOPIC) | {"m": "true"}, body)
            assert answer.code == code
        assert [record.body for record in read_all(client)] == [b"1", b"2"]
        # nor can it have batch queues
        both = create(client, "Both", attributes="+cleanup.policy=COMPACTION,+queue.type=BatchCQ")
        assert both.code == ResponseCode.SYSTEM_ERROR
        assert "does not go together" in str(both.remark)


def test_the_newest_message_of_a_key_is_left(broker: BrokerProcess) -> None:
    with broker.connect() as client, broker.connect() as waiting:
        create(client)
        assert pull(client, TOPIC).code == ResponseCode.PULL_NOT_FOUND
        fill(client, 0, 100)
        until = await_compaction(broker.store, 80)
        left = newest(range(100), 7, until)
        eventually(lambda: [record.queue_offset for record in read_all(client)] == left, 10)
        assert [record.body for record in read_all(client)] == [b"%d" % n for n in left]
        # a pull at an offset that is not there gets the next ones
        for at in (0, 1, left[0] + 1, 99):
            answer = pull(client, TOPIC, at, maxMsgNums="1")
            want = min(n for n in left if n >= at)
            assert (answer.code, answer.ext["nextBeginOffset"]) == (0, str(want + 1))
            assert (answer.ext["minOffset"], answer.ext["maxOffset"]) == (str(left[0]), "100")
        assert offset(client, RequestCode.GET_MIN_OFFSET) == left[0]
        assert offset(client, RequestCode.GET_MAX_OFFSET) == 100
        assert offset(client, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, timestamp="0") == left[0]
        now_ms = str(time.time_ns() // 1_000_000 + 1000)
        assert offset(client, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, timestamp=now_ms) == 100
        tagged = pull(client, TOPIC, sysFlag=str(SUBSCRIPTION), subscription="t1")
        assert {record.properties["TAGS"] for record in split(tagged.body)} == {"t1"}
        # a consumer at the end gets the next message at once
        ext = pull_ext(TOPIC, 100, sysFlag=str(SUSPEND | SUBSCRIPTION), suspendTimeoutMillis="15000")
        waiting.send_request(RequestCode.PULL_MESSAGE, ext)
        fill(client, 100, 1)
        answer = waiting.receive()
        assert (answer.code, [record.body for record in split(answer.body)]) == (0, [b"100"])
        # its messages are in another log: an offset in that of all does not lead to them
        back = {"group": "CG", "offset": "0", "delayLevel": "1", "originTopic": TOPIC, "originMsgId": "x"}
        refused = client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, back)
        assert (refused.code, "compaction topic" in str(refused.remark)) == (ResponseCode.SYSTEM_ERROR, True)
        place = {"originQueueId": "0", "originQueueOffset": str(left[0])}  # as clients of gRPC state it
        assert client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, back | place).code == 0
        trim = client.ask(RequestCode.TRIM_TOPIC, {"topic": TOPIC, "offset": "-1"})
        assert trim.code == ResponseCode.NO_PERMISSION
        # POP takes the same messages
        popped = [
            record.queue_offset for _ in range(2) for record in split(pop(client, TOPIC, initMode="0").body)
        ]
        assert popped == newest(range(101), 7, until)


def test_what_was_compacted_is_not_missing_in_an_export(
    broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    where = broker.running.name_server
    with broker.connect() as client:
        assert create(client).code == 0
        assert send(client, "once", b"first").code == 0
        fill(client, 1, 100, keys=3)
        await_compaction(broker.store, 50)
        left = len(read_all(client))
        assert left < 101
        done = here("topic", "export", TOPIC, str(tmp_path / "f"), name_server=where).rows[0]
        assert (done["messages"] <= left, done["missing"]) == (True, 0)
        here("topic", "copy", TOPIC, "copied", "--create-topics", name_server=where).succeeded()


def test_retention_does_not_delete_compacted_messages(broker: BrokerProcess) -> None:
    with broker.connect() as client:
        create(client)
        fill(client, 0, 100)
        assert client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext("Other", 1)).code == 0
        for _ in range(40):
            assert client.ask(RequestCode.SEND_MESSAGE_V2, send_ext("Other"), bytes(8000)).code == 0
        first = broker.store / "commitlog" / ("0" * 20)
        assert first.exists()

        def expired() -> bool:
            client.ask(RequestCode.DELETE_EXPIRED_COMMITLOG, {})
            return not first.exists()

        eventually(expired, 30)
        until = await_compaction(broker.store, 80)
        left = newest(range(100), 7, until)
        eventually(lambda: [record.queue_offset for record in read_all(client)] == left, 10)
        assert broker.stop() == 0
    assert verify(str(broker.store)).findings == []
    with broker_on(broker.store) as again, again.connect() as client:
        assert [record.queue_offset for record in read_all(client)] == left
        fill(client, 100, 5)
        assert [record.queue_offset for record in read_all(client)][-6:] == [99, 100, 101, 102, 103, 104]
        assert again.stop() == 0


def test_a_deleted_topic_leaves_nothing(broker: BrokerProcess) -> None:
    with broker.connect() as client:
        create(client)
        fill(client, 0, 60)
        await_compaction(broker.store, 40)
        assert client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": TOPIC}).code == 0
        folder = broker.store / "compaction"

        def left() -> list[str]:
            found = os.walk(folder)  # which passes over folders that are deleted meanwhile
            return [name for _, folders, files in found for name in folders + files if name.isdecimal()]

        eventually(lambda: not left())
        create(client)
        assert pull(client, TOPIC).code == ResponseCode.PULL_NOT_FOUND
        fill(client, 0, 60, keys=3)
        until = await_compaction(broker.store, 40)
        eventually(
            lambda: [record.queue_offset for record in read_all(client)] == newest(range(60), 3, until), 10
        )


def test_without_compaction_all_messages_are_read(tmp_path: Path) -> None:
    with broker_on(tmp_path / "store", enableCompaction="false") as broker, broker.connect() as client:
        create(client)
        fill(client, 0, 60)
        assert send(client, None, b"x").code == ResponseCode.MESSAGE_ILLEGAL
        assert len(read_all(client)) == 60
        assert broker.stop() == 0
    assert not (tmp_path / "store/compaction").exists()
    with broker_on(tmp_path / "store") as broker, broker.connect() as client:
        until = await_compaction(tmp_path / "store", 40)
        assert [record.queue_offset for record in read_all(client)] == newest(range(60), 7, until)


@pytest.mark.parametrize("kills", [4, pytest.param(30, marks=pytest.mark.long)])
def test_kills_lose_no_newest_message(tmp_path: Path, kills: int) -> None:
    """Killed while it copies and compacts: of each key the last message that was acknowledged is there."""
    store, draw, acknowledged = tmp_path / "store", random.Random(52), dict[str, bytes]()
    files = {"compactionMappedFileSize": "46000", "compactionCqMappedFileSize": "9200"}
    sent = 0
    for round_number in range(kills):
        with broker_on(store, compactionScheduleInternal="5", **files) as broker, broker.connect() as client:
            if not round_number:
                create(client)
            before, more, deadline = position(store), draw.randrange(300), time.monotonic() + 20
            while (position(store) == before or more > 0) and time.monotonic() < deadline:
                more -= position(store) != before
                key, body = f"k{draw.randrange(9)}", b"%d" % sent
                answer = send(client, key, body)
                assert (answer.code, answer.ext["queueOffset"]) == (0, str(sent))
                acknowledged[key], sent = body, sent + 1
            broker.kill()
        with (
            broker_on(store, compactionScheduleInternal="600000", **files) as broker,
            broker.connect() as client,
        ):
            found = {record.properties["KEYS"]: record.body for record in read_all(client)}
            assert found == acknowledged
            offsets = [record.queue_offset for record in read_all(client)]
            assert offsets == sorted(set(offsets))
            assert offset(client, RequestCode.GET_MAX_OFFSET) == sent
            assert broker.stop() == 0
        assert verify(str(store)).findings == []
    assert position(store) > 100 * kills
