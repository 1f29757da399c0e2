"""Compaction topics: stores that move between FireArrow and Apache's broker, and what both answer."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from firearrow._native.store.log.record import Record
from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.maintenance.verify import verify
from tests.integration.test_compaction_topics import TOPIC, await_compaction, create, newest, offset, position
from tests.interop.driver import Driver
from tests.interop.peers import Apache, FireArrow, address
from tests.interop.toolchain import java_class_path, need
from tests.support.client_socket import ClientSocket
from tests.support.eventually import eventually
from tests.support.requests import pull, pull_ext, send_ext
from tests.support.stores import split

pytestmark = pytest.mark.interop

Open = Callable[[Path, dict[str, str]], AbstractContextManager[FireArrow] | AbstractContextManager[Apache]]
SIZES = {
    "mappedFileSizeConsumeQueue": "2000",
    "mappedFileSizeCommitLog": "1048576",
    "compactionMappedFileSize": "4096",
    "compactionCqMappedFileSize": "460",
    "compactionScheduleInternal": "1000",
    "maxHashSlotNum": "500",
    "maxIndexNum": "2000",
    "brokerName": "broker-a",
}
KEYS = 7


def send(connection: ClientSocket, first: int, count: int) -> list[RemotingCommand]:
    """Records of the same size from both brokers, and no rounding of a file's last record."""
    answers = []
    for n in range(first, first + count):
        properties = f"KEYS\x01k{n % KEYS}\x02UNIQ_KEY\x01id{n:04}\x02TAGS\x01t{n % 2}\x02WAIT\x01true\x02"
        answers.append(
            connection.ask(RequestCode.SEND_MESSAGE_V2, send_ext(TOPIC, i=properties), b"%04d" % n)
        )
    return answers


def read_all(connection: ClientSocket) -> list[Record]:
    found: list[Record] = []
    answer = pull(connection, TOPIC)
    while answer.code == 0:
        found += split(answer.body)
        answer = pull(connection, TOPIC, int(answer.ext["nextBeginOffset"]))
    return found


def numbers(connection: ClientSocket) -> list[int]:
    records = read_all(connection)
    assert all(record.body == b"%04d" % record.queue_offset for record in records)
    return [record.queue_offset for record in records]


def await_copy(peer: Any, connection: ClientSocket, count: int) -> None:  # noqa: ANN401
    """All messages are there; ours are also in the files."""
    eventually(lambda: max(numbers(connection), default=-1) == count - 1, 30)
    if peer.kind == "firearrow":
        queue = peer.store / "compaction/compactionCq" / TOPIC / "0"
        eventually(lambda: count - 1 in entry_offsets(queue), 10)


def entry_offsets(folder: Path) -> set[int]:
    paths = folder.iterdir() if folder.exists() else ()
    data = b"".join(path.read_bytes() for path in paths if path.name.isdecimal())
    units = (data[at : at + 46] for at in range(0, len(data), 46))
    return {int.from_bytes(unit[28:36], "big") for unit in units if unit[36:38] == b"\0\1"}


@pytest.mark.parametrize(
    ("writer", "reader", "killed"),
    [
        pytest.param(FireArrow, Apache, False, id="ours, stopped"),
        pytest.param(FireArrow, Apache, True, id="ours, killed", marks=pytest.mark.long),
        pytest.param(Apache, FireArrow, False, id="theirs, stopped", marks=pytest.mark.long),
        pytest.param(Apache, FireArrow, True, id="theirs, killed", marks=pytest.mark.long),
    ],
)
def test_a_store_changes_hands(writer: Open, reader: Open, tmp_path: Path, killed: bool) -> None:
    need(lambda: java_class_path("client5"))
    store = tmp_path / "store"
    with writer(store, SIZES) as peer, ClientSocket(address(peer.address)) as connection:
        create(connection)
        assert all(answer.code == 0 for answer in send(connection, 0, 100))
        first = await_compaction(store, 80)
        eventually(lambda: numbers(connection) == newest(range(100), KEYS, first), 10)
        assert all(answer.code == 0 for answer in send(connection, 100, 5))
        await_copy(peer, connection, 105)
        written = numbers(connection)
        peer.kill() if killed else peer.stop()
    with reader(store, SIZES) as peer, ClientSocket(address(peer.address)) as connection:
        assert offset(connection, RequestCode.GET_MAX_OFFSET) == 105
        assert set(numbers(connection)) <= set(written)
        assert set(numbers(connection)) >= set(range(98, 105))
        answers = send(connection, 105, 60)
        assert [int(answer.ext["queueOffset"]) for answer in answers] == [*range(105, 165)]
        second = await_compaction(store, 150)
        eventually(lambda: numbers(connection) == newest(range(165), KEYS, second), 20)
        left = numbers(connection)
        peer.stop()
    assert verify(str(store)).findings == []
    with writer(store, SIZES | {"compactionScheduleInternal": "600000"}) as peer:
        with ClientSocket(address(peer.address)) as connection:
            assert numbers(connection) == left
            assert send(connection, 165, 1)[0].ext["queueOffset"] == "165"
            eventually(lambda: numbers(connection) == [*left, 165], 20)
        peer.stop()


@pytest.mark.long
def test_answers_and_files_are_apaches(tmp_path: Path) -> None:
    """The same requests to both: the answers but times and hosts, the entries, and where each record is."""
    need(lambda: java_class_path("client5"))
    outcomes = []
    settings = SIZES | {"compactionScheduleInternal": "3000"}
    for name, broker in (("ours", FireArrow), ("theirs", Apache)):
        store = tmp_path / name
        opened: AbstractContextManager[Any] = broker(store, settings)
        with opened as peer, ClientSocket(address(peer.address)) as connection:
            created = create(connection)
            empty = [pull(connection, TOPIC, at).code for at in (0, 5)]
            refused = connection.ask(RequestCode.SEND_MESSAGE_V2, send_ext(TOPIC), b"x")
            send(connection, 0, 90)
            await_copy(peer, connection, 90)
            before = pulls(connection)
            place = store / "compaction/compactionCq" / TOPIC / "0"
            copied = entries(place)
            eventually(lambda place=place: position(place.parents[3]) > 0, 30)
            eventually(lambda at=connection: numbers(at)[0] > 0, 10)
            outcomes.append(
                {
                    "created": created.code,
                    "empty": empty,
                    "refused": (refused.code, refused.remark),
                    "before": before,
                    "copied": copied,
                    "position": position(store),
                    "after": pulls(connection),
                    "compacted": entries(place),
                }
            )
            peer.stop()
    ours, theirs = outcomes
    for part in ours:
        assert ours[part] == theirs[part], part


def pulls(connection: ClientSocket) -> list[tuple[Any, ...]]:
    """At each offset the next three messages: those of the last file of a pull follow in another answer of Apache's."""
    found: list[tuple[Any, ...]] = []
    for at in range(91):
        answer = connection.ask(RequestCode.PULL_MESSAGE, pull_ext(TOPIC, at, maxMsgNums="1"))
        records = split(answer.body) if answer.code == 0 else []
        found.append(
            (
                answer.code,
                {name: answer.ext[name] for name in ("nextBeginOffset", "minOffset", "maxOffset")},
                [(record.queue_offset, record.body, record.properties["KEYS"]) for record in records],
            )
        )
    return found


def entries(folder: Path) -> dict[str, list[tuple[int, int]]]:
    """Of each file the tags code and offset of its messages, and how it ends."""
    found = {}
    for path in sorted(folder.iterdir()):
        if path.is_file():
            data = path.read_bytes()
            units = [data[at : at + 46] for at in range(0, 460, 46)]
            found[path.name] = [
                (int.from_bytes(unit[12:20], "big"), int.from_bytes(unit[28:36], "big")) for unit in units
            ]
    return found


@pytest.mark.long
def test_the_java_client_consumes_compacted_messages(tmp_path: Path) -> None:
    need(lambda: java_class_path("client5"))
    store = tmp_path / "store"
    with FireArrow(store, SIZES) as peer, Driver("java5", peer.name_server, tmp_path / "java") as client:
        with ClientSocket(address(peer.address)) as connection:
            create(connection)
            send(connection, 0, 100)
            until = await_compaction(store, 80)
            left = newest(range(100), KEYS, until)
            eventually(lambda: numbers(connection) == left, 10)
        client.ask("consume", name="reader", group="reader", topic=TOPIC)
        client.await_count("reader", len(left))
        client.ask("stop", name="reader")
        assert sorted(message["queueOffset"] for message in client.consumed("reader")) == left
        peer.stop()
