"""Apache's broker opens a store whose queues were trimmed: it knows the files, not the offsets inside them."""

import time
from pathlib import Path

import pytest

from firearrow._native.wire.codes import RequestCode
from tests.interop.peers import Apache, FireArrow, Peer, address
from tests.interop.toolchain import java_class_path, need
from tests.support.client_socket import ClientSocket
from tests.support.requests import pull, records, send

pytestmark = pytest.mark.interop

SIZES = {
    "mappedFileSizeCommitLog": "1048576",
    "mappedFileSizeConsumeQueue": "2000",
    "maxHashSlotNum": "500",
    "maxIndexNum": "2000",
    "maxMessageSize": "400000",
    "brokerName": "broker-a",
}
QUICK = {"deleteConsumeQueueFilesInterval": "0", "cleanResourceInterval": "200"}


def trim(connection: ClientSocket, topic: str, offset: int) -> None:
    ext = {"topic": topic, "queueId": "0", "offset": str(offset)}
    answer = connection.ask(RequestCode.TRIM_TOPIC, ext)
    assert answer.code == 0, answer.remark


def first_offset(connection: ClientSocket, topic: str) -> int:
    ext = {"topic": topic, "queueId": "0"}
    return int(connection.ask(RequestCode.GET_MIN_OFFSET, ext).ext["offset"])


def offsets(connection: ClientSocket, topic: str, first: int) -> list[int]:
    """Those of the first messages from `first` on."""
    return [record.queue_offset for record in records(pull(connection, topic, first).body)]


def await_files(folder: Path, first: int) -> None:
    deadline = time.monotonic() + 20
    while min(int(path.name) for path in folder.iterdir()) < first:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def connect(peer: Peer) -> ClientSocket:
    return ClientSocket(address(peer.address))


def test_apache_shows_a_queue_from_its_first_file_on(tmp_path: Path) -> None:
    need(lambda: java_class_path("client5"))
    store = tmp_path / "store"
    with FireArrow(store, SIZES | QUICK) as peer, connect(peer) as client:
        for n in range(250):
            assert send(client, "T", b"%d" % n).code == 0
            assert send(client, "Purged", b"%d" % n).code == 0
        trim(client, "T", 230)
        trim(client, "Purged", -1)
        await_files(store / "consumequeue/T/0", 200 * 20)
        await_files(store / "consumequeue/Purged/0", 200 * 20)
        peer.stop()
    with Apache(store, SIZES) as peer, connect(peer) as client:
        for topic in ("T", "Purged"):
            assert first_offset(client, topic) == 200, "what is before in the same file is seen again"
            answer = pull(client, topic, 5)
            assert (answer.code, answer.ext["nextBeginOffset"]) == (21, "200")
            assert offsets(client, topic, 230)[:20] == list(range(230, 250))
            assert send(client, topic, b"of Apache").code == 0
        peer.stop()
    with FireArrow(store, SIZES | QUICK) as peer, connect(peer) as client:
        assert (first_offset(client, "T"), first_offset(client, "Purged")) == (230, 250)
        assert offsets(client, "T", 230) == list(range(230, 251))
        assert offsets(client, "Purged", 250) == [250]
        peer.stop()


def test_apache_begins_where_the_log_begins(tmp_path: Path) -> None:
    need(lambda: java_class_path("client5"))
    store = tmp_path / "store"
    with FireArrow(store, SIZES | QUICK) as peer, connect(peer) as client:
        for _ in range(95):
            assert send(client, "Big", bytes(100_000)).code == 0
        trim(client, "Big", 90)
        await_files(store / "commitlog", 8 << 20)
        peer.stop()
    with Apache(store, SIZES) as peer, connect(peer) as client:
        first = first_offset(client, "Big")
        assert 80 <= first <= 90
        assert offsets(client, "Big", 90)[0] == 90
        assert pull(client, "Big", 10).ext["nextBeginOffset"] == str(first)
        peer.stop()
