"""`verify` and topics that were deleted: their records have no queue entries, which is no finding, however the broker
was stopped and whether or not a file knows the deletion. Damage of the topic that has the name now stays one."""

import json
from contextlib import closing
from pathlib import Path

import pytest

from firearrow._native.store_checks.findings import Kind
from firearrow._native.wire.codes import RequestCode
from firearrow.broker.maintenance.backup import BackupOptions, backup
from firearrow.broker.maintenance.verify import VerifyOptions, VerifyResult, verify
from tests.maintenance.damaged import overwrite
from tests.maintenance.tool import run
from tests.support.broker_process import BrokerProcess
from tests.support.client_socket import ClientSocket
from tests.support.requests import Record, read_queue, send, send_ext, topic_ext

ENTRY_BYTES, FIRST = 20, "0" * 20
OLD, NEW = 6, 4
NOTE = "records of deleted topics, which have no queue entries"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


def create(connection: ClientSocket, topic: str, queues: int = 1) -> None:
    assert connection.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(topic, queues)).code == 0


def delete(connection: ClientSocket, topic: str) -> None:
    assert connection.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic}).code == 0


def fill(connection: ClientSocket, topic: str, count: int, queues: int = 1) -> None:
    create(connection, topic, queues)
    for number in range(count):
        assert send(connection, topic, b"%d" % number, number % queues, tag="t").code == 0


def history(connection: ClientSocket) -> None:
    """Topics of every kind of past, one of each name."""
    fill(connection, "kept", 3)
    fill(connection, "deleted", 2)
    delete(connection, "deleted")
    for count in (OLD, 2, NEW):  # two earlier ones of the name, the first the longest
        fill(connection, "again", count)
        delete(connection, "again") if count != NEW else None
    fill(connection, "longer", NEW)
    delete(connection, "longer")
    fill(connection, "longer", OLD)
    fill(connection, "other-queues", OLD, queues=3)
    delete(connection, "other-queues")
    fill(connection, "other-queues", 1, queues=1)
    fill(connection, "empty-again", 2)
    delete(connection, "empty-again")
    create(connection, "empty-again")
    light = send_ext("kept", i="INNER_MULTI_DISPATCH\x01%LMQ%light\x02")
    assert connection.ask(RequestCode.SEND_MESSAGE_V2, light, b"light").code == 0
    fill(connection, "kept", 1)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with that history, its broker stopped cleanly."""
    root = tmp_path_factory.mktemp("deleted") / "store"
    with BrokerProcess(root, "--set", "enableLmq=true", "--set", "enableMultiDispatch=true") as broker:
        with closing(broker.connect()) as connection:
            history(connection)
        assert broker.stop() == 0
    return root


def contents(connection: ClientSocket) -> dict[str, list[Record]]:
    """What consumers read of queue 0 of each topic."""
    topics = ("kept", "again", "longer", "other-queues", "empty-again")
    return {topic: read_queue(connection, topic, 0) for topic in topics}


def checked(root: Path) -> VerifyResult:
    return verify(str(root), VerifyOptions(jobs=1))


def clean(verified: VerifyResult) -> None:
    assert verified.clean, verified.findings
    assert any(NOTE in note for note in verified.seen.state), verified.seen.state


def test_a_stopped_store_is_clean_and_needs_no_repair(stopped: Path) -> None:
    clean(checked(stopped))
    assert run("verify", stopped).code == 0
    repaired = run("repair", "--yes", stopped)
    assert repaired.code == 0, repaired.out + repaired.err
    clean(checked(stopped))


def test_without_the_file_only_queues_without_any_entry_are_in_doubt(stopped: Path, tmp_path: Path) -> None:
    """As in a store of Apache's broker: a queue's first entry, or a topic that no file names, shows the deletion."""
    backup(str(stopped), tmp_path / "copy")
    for name in ("deletedTopics.json", "deletedTopics.json.bak"):
        (tmp_path / "copy" / "config" / name).unlink(missing_ok=True)
    found = checked(tmp_path / "copy").findings
    assert {(each.kind, each.where.topic, each.where.queue_id) for each in found} == {
        (Kind.NO_ENTRY, "other-queues", 1),
        (Kind.NO_ENTRY, "other-queues", 2),
        (Kind.NO_ENTRY, "empty-again", 0),
    }


def test_running_and_killed_stores_and_their_backups_are_clean_and_lose_nothing(
    root: Path, tmp_path: Path
) -> None:
    options = ("--set", "enableLmq=true", "--set", "enableMultiDispatch=true")
    with BrokerProcess(root, *options) as broker:
        with closing(broker.connect()) as connection:
            history(connection)
            before = contents(connection)
        clean(checked(root))
        _, verified = backup(str(root), tmp_path / "live", BackupOptions(verify=True, jobs=1))
        assert verified is not None
        clean(verified)
        broker.kill()
    clean(checked(root))
    with BrokerProcess(root, *options) as broker, closing(broker.connect()) as connection:
        assert contents(connection) == before
        delete(connection, "kept")
        fill(connection, "again", 1)
        assert broker.stop() == 0
    clean(checked(root))
    with BrokerProcess(tmp_path / "live", *options) as broker, closing(broker.connect()) as connection:
        assert contents(connection) == before  # a restored backup
        assert broker.stop() == 0
    clean(checked(tmp_path / "live"))


def test_damage_of_the_topic_that_has_the_name_now_is_found(stopped: Path, tmp_path: Path) -> None:
    backup(str(stopped), tmp_path / "copy", BackupOptions(links=False))
    queue = tmp_path / "copy" / "consumequeue" / "again" / "0" / FIRST
    first, third = (int.from_bytes(queue.read_bytes()[at : at + 8]) for at in (0, 2 * ENTRY_BYTES))
    overwrite(queue, ENTRY_BYTES, first.to_bytes(8))
    found = checked(tmp_path / "copy").findings
    assert [(each.kind, each.where.topic, each.where.queue_offset) for each in found] == [
        (Kind.WRONG_ENTRY, "again", 1)
    ]
    overwrite(queue, ENTRY_BYTES, bytes(ENTRY_BYTES))
    assert Kind.NO_ENTRY in {each.kind for each in checked(tmp_path / "copy").findings}
    overwrite(queue, 0, third.to_bytes(8))  # its first entry looks newer than it is
    assert Kind.LOST_RECORD in {each.kind for each in checked(tmp_path / "copy").findings}


def test_a_lost_queue_of_a_topic_that_exists_is_found(stopped: Path, tmp_path: Path) -> None:
    backup(str(stopped), tmp_path / "copy", BackupOptions(links=False))
    queue = tmp_path / "copy" / "consumequeue" / "longer" / "0" / FIRST
    queue.unlink()
    found = checked(tmp_path / "copy").findings
    assert {(each.kind, each.where.topic) for each in found} == {(Kind.NO_ENTRY, "longer")}
    assert sum(each.where.count for each in found) == OLD


@pytest.mark.parametrize(
    "text",
    [
        f'{{"topics":[{{"topic":"again","logEnd":{1 << 63},"timestamp":1}}]}}',
        '{"topics":[{"topic":"again","logEnd":1e999,"timestamp":1}]}',
    ],
)
def test_a_damaged_file_neither_ends_a_start_nor_hides_what_the_log_has(
    stopped: Path, tmp_path: Path, text: str
) -> None:
    backup(str(stopped), tmp_path / "copy", BackupOptions(links=False))
    config = tmp_path / "copy" / "config"
    for name in ("deletedTopics.json", "deletedTopics.json.bak", "trimmedQueues.json"):
        (config / name).write_text(text)
    (tmp_path / "copy" / "abort").touch()  # as after a kill
    checked(tmp_path / "copy")
    with BrokerProcess(tmp_path / "copy") as broker, closing(broker.connect()) as connection:
        assert len(read_queue(connection, "again", 0)) >= NEW
        send(connection, "kept", b"more")
    assert (config / "deletedTopics.json.damaged-1").read_text() == text


def test_a_start_bounds_deletions_by_a_log_that_is_shorter_now(stopped: Path, tmp_path: Path) -> None:
    backup(str(stopped), tmp_path / "copy", BackupOptions(links=False))
    path = tmp_path / "copy" / "config" / "deletedTopics.json"
    document = json.loads(path.read_bytes())
    for of in document["topics"]:
        of["logEnd"] = 1 << 40
    path.write_bytes(json.dumps(document).encode())
    with BrokerProcess(tmp_path / "copy") as broker:
        assert broker.stop() == 0
    assert all(0 < of["logEnd"] < 1 << 30 for of in json.loads(path.read_bytes())["topics"])


def test_a_deletion_known_of_a_longer_log_excuses_no_record_stored_since(
    stopped: Path, tmp_path: Path
) -> None:
    """After a power cut the log may be shorter than it was when the topic was deleted."""
    backup(str(stopped), tmp_path / "copy", BackupOptions(links=False))
    path = tmp_path / "copy" / "config" / "deletedTopics.json"
    document = json.loads(path.read_bytes())
    (longer,) = (of for of in document["topics"] if of["topic"] == "longer")
    longer["logEnd"] = 1 << 40
    path.write_bytes(json.dumps(document).encode())
    overwrite(
        tmp_path / "copy" / "consumequeue" / "longer" / "0" / FIRST, 3 * ENTRY_BYTES, bytes(ENTRY_BYTES)
    )
    assert Kind.NO_ENTRY in {each.kind for each in checked(tmp_path / "copy").findings}
