"""`firearrow doctor --store`: a stopped store, a killed one, Apache's, and what is no store."""

import os
import shutil
import time
from pathlib import Path

import pytest

from firearrow._native.base import last_backup
from firearrow._native.base.last_backup import LastBackup
from firearrow._native.wire.codes import RequestCode
from firearrow.client.base.times import now_ms
from firearrow.client.cli.doctor import store_samples
from tests.doctor.heartbeats import beat
from tests.doctor.running import doctor
from tests.golden import unpacked
from tests.support.broker_process import BrokerProcess
from tests.support.client_socket import ClientSocket
from tests.support.requests import pull, records, send, topic_ext
from tests.support.stores import open_store, put

DAY_MS = 86_400_000


def commit(client: ClientSocket, group: str, topic: str, offset: int) -> None:
    ext = {"consumerGroup": group, "topic": topic, "queueId": "0", "commitOffset": str(offset)}
    assert client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, ext).code == 0


def test_a_stopped_store_in_order_has_no_findings(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "store") as broker, broker.connect() as client:
        for number in range(4):
            assert send(client, "Read", b"m", number).code == 0
        beat(client, "Group", "a", {"Read": "*"})
        commit(client, "Group", "Read", 1)
        assert broker.stop() == 0
    said = doctor("--store", str(tmp_path / "store"))
    assert said.findings == []
    assert said.code == 0
    assert {each["check"] for each in said.skipped} >= {"group-subscriptions", "file-descriptors"}


def test_what_its_files_say(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with BrokerProcess(store) as broker, broker.connect() as client:
        assert client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext("Work")).code == 0
        for number in range(1100):
            assert send(client, "Work", b"m", 0 if number < 1090 else number % 4).code == 0
        assert send(client, "Work", bytes(1 << 20), 3).code == 0
        assert send(client, "Unread", b"m").code == 0
        beat(client, "Work", "a", {"Work": "*"})
        commit(client, "Work", "Work", 1000)
        record = next(records(pull(client, "Work").body))
        ext = {
            "offset": str(record.physical_offset),
            "group": "Work",
            "delayLevel": "-1",
            "originTopic": "Work",
        }
        assert client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, ext | {"unitMode": "false"}).code == 0
        assert broker.stop() == 0
    said = doctor("--store", str(store))
    assert {(each["check"], each["subject"]) for each in said.findings} == {
        ("unread-dead-letters", "group Work"),
        ("topics-without-groups", "topic Unread"),
        ("skewed-queues", "topic Work"),
        ("big-messages", "topic Work"),
    }
    assert said.code == 1


def test_a_killed_broker_and_a_running_one(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with BrokerProcess(store) as broker:
        assert doctor("--store", str(store)).code == 0, "it runs"
        broker.kill()
        (finding,) = doctor("--store", str(store)).of("unclean-stop")
    assert f"firearrow store verify {store}" in finding["fix"]


def test_old_messages_that_wait_and_have_no_backup(tmp_path: Path) -> None:
    store, old_ms = tmp_path / "store", now_ms() - 3 * DAY_MS
    with open_store(store) as opened:
        for _ in range(3):
            put(opened, b"m", "Old", now_ms=old_ms)
        opened.write()
    config = store / "config"
    config.mkdir(exist_ok=True)
    (config / "consumerOffset.json").write_text('{"offsetTable":{"Old@Late":{0:1}}}')
    said = doctor("--store", str(store))
    assert "2 unread messages" in said.about("group Late")["unread-expires-soon"]["why"]
    (finding,) = said.of("last-backup")
    assert "no backup is known, and its messages go back 3d0h" in finding["found"]
    last_backup.write(str(store), LastBackup(now_ms(), "/backup", 0))
    assert not doctor("--store", str(store)).of("last-backup")


def test_offsets_before_the_first_message(tmp_path: Path) -> None:
    """Retention has deleted what the group did not read."""
    store = tmp_path / "store"
    with open_store(store) as opened:
        for _ in range(60):
            put(opened, bytes(200), "T", now_ms=now_ms())
            opened.write()
    segments = sorted((store / "commitlog").iterdir())
    assert len(segments) > 2
    segments[0].unlink()
    (store / "config").mkdir(exist_ok=True)
    (store / "config" / "consumerOffset.json").write_text('{"offsetTable":{"T@Late":{"0":3}}}')
    finding = doctor("--store", str(store)).about("group Late")["unread-expired"]
    assert "of T queue 0 at store were deleted" in finding["found"]


def test_apaches_store_is_read(tmp_path: Path) -> None:
    root = unpacked("store-apache", tmp_path)
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*") if path.is_file()}
    said = doctor("--store", str(root))
    assert said.code in (0, 1)
    assert not [each for each in said.skipped if each["check"] == "facts"]
    after = {path: path.stat().st_mtime_ns for path in root.rglob("*") if path.is_file()}
    assert after == before, "nothing is written"


def test_damaged_tables_are_named(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with open_store(store) as opened:
        put(opened, b"m", "T", now_ms=now_ms())
        opened.write()
    (store / "config").mkdir(exist_ok=True)
    (store / "config" / "topics.json").write_text("{damaged")
    said = doctor("--store", str(store))
    (reason,) = [each["reason"] for each in said.skipped if each["check"] == "facts"]
    assert "topics.json cannot be read" in reason
    (finding,) = said.of("store-damage")
    assert finding["severity"] == "CRITICAL"
    assert "topics.json at byte 0: it is damaged, and there is no valid .bak" in finding["found"]
    assert f"firearrow store verify {store}" in finding["fix"]
    assert said.code == 1


def _overwrite(path: Path, data: bytes, position: int) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of a real broker that was stopped: 400 messages in several files."""
    store = tmp_path_factory.mktemp("stopped") / "store"
    with BrokerProcess(store, "--set", "mappedFileSizeCommitLog=65536") as broker, broker.connect() as client:
        for number in range(400):
            assert send(client, "Work", b"%d" % number * 100, number % 4).code == 0
        assert broker.stop() == 0
    return store


def test_a_store_without_damage(stopped: Path) -> None:
    said = doctor("--store", str(stopped))
    assert said.of("store-damage") == []
    assert "store-damage" not in {each["check"] for each in said.skipped}, "all was looked at"


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ("torn log", "torn: commitlog"),
        ("torn tail", "torn tail: commitlog"),
        ("changed body", "bad CRC: commitlog"),
        ("cut file", "cut file: commitlog"),
        ("missing file", "missing segment: commitlog"),
        ("overwritten queue", "consumequeue"),
        ("queue of zeros", "queue"),
        ("broken topics.json", "config file: config/topics.json"),
        ("broken offsets", "config file: config/consumerOffset.json"),
        ("broken checkpoint", "checkpoint: checkpoint"),
    ],
)
def test_damage_of_a_store(
    stopped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str, words: str, whole: bool
) -> None:
    """Of a small store, and as a large one: then samples are looked at, and what was left out is named."""
    store = tmp_path / "store"
    shutil.copytree(stopped, store)
    segments = sorted((store / "commitlog").iterdir())
    queue = next((store / "consumequeue" / "Work" / "1").iterdir())
    end = max(n for n, byte in enumerate(segments[-1].read_bytes()) if byte) + 1
    if damage == "torn log":
        _overwrite(segments[0], b"\x55" * 3000, 2000)
    elif damage == "torn tail":
        _overwrite(segments[-1], b"\x55" * 60, end)
    elif damage == "changed body":
        _overwrite(segments[-1], b"x", segments[-1].read_bytes().rindex(b"399399"))
    elif damage == "cut file":
        os.truncate(segments[0], 4096)
    elif damage == "missing file":
        segments[1].unlink()
    elif damage == "overwritten queue":
        _overwrite(queue, os.urandom(40 * 20), 200)
    elif damage == "queue of zeros":
        _overwrite(queue, bytes(49 * 20), 20)
    elif damage == "broken checkpoint":
        (store / "checkpoint").write_bytes(b"short")
    else:
        name = "topics.json" if "topics" in damage else "consumerOffset.json"
        (store / "config" / name).write_bytes(b'{"topicConfigTable":{')
    if not whole:
        monkeypatch.setattr(store_samples, "WHOLE_BYTES", 0)
        monkeypatch.setattr(store_samples, "SAMPLE_BYTES", 65536)
    said = doctor("--store", str(store))
    found = [each["found"] for each in said.of("store-damage")]
    assert [text for text in found if words in text], (found, said.skipped)
    assert said.code == 1
    left_out = [each["reason"] for each in said.skipped if each["check"] == "store-damage"]
    assert len(left_out) == (not whole)
    assert all(f"firearrow store verify {store}" in reason for reason in left_out)


@pytest.mark.parametrize("sample_bytes", [4096, 64])
def test_samples_of_a_store_without_damage(
    stopped: Path, monkeypatch: pytest.MonkeyPatch, sample_bytes: int
) -> None:
    """A small sample may be inside a record, or in the blank at the end of a file."""
    monkeypatch.setattr(store_samples, "WHOLE_BYTES", 0)
    monkeypatch.setattr(store_samples, "TAIL_BYTES", sample_bytes)
    monkeypatch.setattr(store_samples, "SAMPLE_BYTES", sample_bytes)
    for _ in range(5):
        assert doctor("--store", str(stopped)).of("store-damage") == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as opened:
        put(opened, b"m", "T", now_ms=now_ms())
        opened.write()
    (tmp_path / "store").chmod(0o500)
    said = doctor("--store", str(tmp_path / "store"))
    assert "fsync-time" in {each["check"] for each in said.skipped}
    (tmp_path / "store").chmod(0o700)


def test_what_is_no_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor("--store", str(tmp_path)).code == 2
    assert "is not a store" in capsys.readouterr().err
    shutil.rmtree(tmp_path, ignore_errors=True)
    assert doctor("--store", str(tmp_path / "gone")).code == 2


def test_it_is_quick(tmp_path: Path) -> None:
    """Of each queue it reads a few entries, not all."""
    store = tmp_path / "store"
    with open_store(store, segment_bytes=1 << 22, queue_file_bytes=1 << 20) as opened:
        for _ in range(20_000):
            put(opened, b"m", "T", now_ms=now_ms())
        opened.write()
    begin = time.perf_counter()
    doctor("--store", str(store))
    assert time.perf_counter() - begin < 2
