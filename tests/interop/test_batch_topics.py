"""BatchCQ topics: the Java client, and stores that move between FireArrow and Apache's broker."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from firearrow._native.store.log.record import Record
from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.maintenance.verify import verify
from tests.interop.driver import Driver
from tests.interop.messages import hexed, numbered, read
from tests.interop.peers import Apache, FireArrow, address
from tests.interop.toolchain import java_class_path, need
from tests.support.client_socket import ClientSocket
from tests.support.eventually import eventually
from tests.support.requests import pull, send_ext, topic_ext
from tests.support.stores import item, split

pytestmark = pytest.mark.interop

Open = Callable[[Path, dict[str, str]], AbstractContextManager[FireArrow] | AbstractContextManager[Apache]]
SIZES = {
    "mappedFileSizeCommitLog": "1048576",
    "mapperFileSizeBatchConsumeQueue": "460",
    "maxHashSlotNum": "500",
    "maxIndexNum": "2000",
    "brokerName": "broker-a",
}
TOPIC = "Batches"


def create(connection: ClientSocket) -> None:
    ext = topic_ext(TOPIC, 1) | {"attributes": "+queue.type=BatchCQ"}
    assert connection.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, ext).code == 0


def write(connection: ClientSocket, first: int, count: int) -> list[RemotingCommand]:
    """Batches of 1 to 5 messages, messages alone, and batches without a unique key."""
    answers = []
    for number in range(first, first + count):
        body, properties = b"%d" % number, f"UNIQ_KEY\x01id{number}\x02TAGS\x01t{number % 2}\x02"
        items = b"".join(item(b"%d.%d" % (number, n), b"KEYS\x01k%d\x02" % n) for n in range(number % 5 + 1))
        code, more = RequestCode.SEND_BATCH_MESSAGE, {"m": "true"}
        if number % 4 == 0:
            code, more, items = RequestCode.SEND_MESSAGE_V2, {}, body
        elif number % 7 == 0:
            properties = ""
        answers.append(connection.ask(code, send_ext(TOPIC, i=properties) | more, items))
    return answers


def read_all(connection: ClientSocket) -> list[Record]:
    found: list[Record] = []
    answer = pull(connection, TOPIC)
    while answer.code == 0:
        found += split(answer.body)
        answer = pull(connection, TOPIC, int(answer.ext["nextBeginOffset"]))
    return found


def end_of(connection: ClientSocket) -> int:
    return int(connection.ask(RequestCode.GET_MAX_OFFSET, {"topic": TOPIC, "queueId": "0"}).ext["offset"])


def seen(record: Record) -> tuple[Any, ...]:
    return (
        record.queue_offset, record.sys_flag, record.body, sorted(record.properties.items()),
        record.physical_offset,
    )  # fmt: skip


def queue_bytes(store: Path) -> bytes:
    files = sorted((store / "batchconsumequeue" / TOPIC / "0").iterdir())
    return b"".join(file.read_bytes() for file in files).rstrip(b"\0")


def messages_of(number: int) -> int:
    return 1 if number % 4 == 0 else number % 5 + 1


def next_offset(answers: int) -> int:
    return sum(map(messages_of, range(answers)))


@pytest.mark.long
@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
@pytest.mark.parametrize(
    ("writer", "reader"), [(FireArrow, Apache), (Apache, FireArrow)], ids=["ours", "theirs"]
)
def test_a_store_changes_hands(writer: Open, reader: Open, tmp_path: Path, killed: bool) -> None:
    need(lambda: java_class_path("client5"))
    store = tmp_path / "store"
    with writer(store, SIZES) as peer, ClientSocket(address(peer.address)) as connection:
        create(connection)
        assert all(answer.code == 0 for answer in write(connection, 0, 60))
        eventually(lambda: end_of(connection) == next_offset(60), 20)
        written = [seen(record) for record in read_all(connection)]
        peer.kill() if killed else peer.stop()
    before = queue_bytes(store)
    assert len(before) > 40 * 46
    with reader(store, SIZES) as peer, ClientSocket(address(peer.address)) as connection:
        assert end_of(connection) == next_offset(60)
        assert [seen(record) for record in read_all(connection)] == written
        answers = write(connection, 60, 20)
        assert [int(answer.ext["queueOffset"]) for answer in answers] == [
            next_offset(number) for number in range(60, 80)
        ]
        eventually(lambda: end_of(connection) == next_offset(80), 20)
        again = [seen(record) for record in read_all(connection)]
        assert again[: len(written)] == written
        peer.stop()
    assert queue_bytes(store).startswith(before)
    assert verify(str(store)).findings == []
    with writer(store, SIZES) as peer, ClientSocket(address(peer.address)) as connection:
        assert [seen(record) for record in read_all(connection)] == again
        peer.stop()


@pytest.mark.long
def test_answers_and_entries_are_apaches(tmp_path: Path) -> None:
    """The same requests to both: all fields but times and hosts are the same."""
    need(lambda: java_class_path("client5"))
    outcomes = []
    for name, broker in (("ours", FireArrow), ("theirs", Apache)):
        store = tmp_path / name
        opened: AbstractContextManager[Any] = broker(store, SIZES)
        with opened as peer, ClientSocket(address(peer.address)) as connection:
            create(connection)
            answers = write(connection, 0, 40)
            eventually(lambda at=connection: end_of(at) == next_offset(40), 20)
            pulls = [pull(connection, TOPIC, at, maxMsgNums="7") for at in range(next_offset(40) + 2)]
            records = read_all(connection)
            peer.stop()
        outcome = {
            "answers": [
                (answer.code, {key: text for key, text in answer.ext.items() if key != "msgId"}
                 | {"messages": answer.ext["msgId"].count(",")})
                for answer in answers
            ],
            "pulls": [(answer.code, answer.ext["nextBeginOffset"], answer.ext["maxOffset"]) for answer in pulls],
            "records": [
                (record.queue_offset, record.sys_flag, record.body, {
                    key: text for key, text in record.properties.items() if key not in ("MSG_REGION", "TRACE_ON")
                })
                for record in records
            ],
            "entries": [
                (unit[20:28] != bytes(8), unit[28:]) for unit in
                (queue_bytes(store).ljust(40 * 46, b"\0")[at : at + 46] for at in range(0, 30 * 46, 46))
            ],
        }  # fmt: skip
        outcomes.append(outcome)
    ours, theirs = outcomes
    for part in ours:
        assert ours[part] == theirs[part], part


@pytest.mark.parametrize(
    ("writer", "reader"),
    [
        (FireArrow, FireArrow),
        (Apache, FireArrow),
        pytest.param(FireArrow, Apache, marks=pytest.mark.long),
    ],
    ids=["ours", "theirs to ours", "ours to theirs"],
)
def test_the_java_client_takes_batches_apart(writer: Open, reader: Open, tmp_path: Path) -> None:
    """Its batches have unique keys, so that both brokers store each as one message."""
    need(lambda: java_class_path("client5"))
    store = tmp_path / "store"
    with writer(store, SIZES) as peer, Driver("java5", peer.name_server, tmp_path / "writer") as client:
        with ClientSocket(address(peer.address)) as connection:
            create(connection)
        client.ask("send", group="writer", topic=TOPIC, body=hexed("alone"))
        client.ask("send", group="writer", topic=TOPIC, how="batch", keys="k", body=numbered("item", 30))
        client.ask("send", group="writer", topic=TOPIC, body=hexed("last"))
        peer.stop()
    with reader(store, SIZES) as peer, Driver("java5", peer.name_server, tmp_path / "reader") as client:
        with ClientSocket(address(peer.address)) as connection:
            assert [record.queue_offset for record in read_all(connection)] == [0, 1, 31]
        found = sorted(read(client, TOPIC, 32), key=lambda message: message["queueOffset"])
        assert [message["queueOffset"] for message in found] == [*range(32)]
        assert [message["body"] for message in found[1:31]] == numbered("item", 30)
        peer.stop()
