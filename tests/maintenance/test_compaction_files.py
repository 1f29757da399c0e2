"""Compacted messages: `verify` names what is wrong with them, a broker repairs it, and a backup has all of them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from firearrow._native.store_checks.findings import Kind
from firearrow.broker.maintenance.verify import verify
from tests.integration.test_compaction_topics import (
    TOPIC,
    await_compaction,
    broker_on,
    create,
    fill,
    newest,
    read_all,
)
from tests.maintenance.tool import run
from tests.support.eventually import eventually


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with broker_on(tmp_path / "store") as broker, broker.connect() as client:
        create(client)
        fill(client, 0, 100)
        await_compaction(broker.store, 80)
        assert broker.stop() == 0
    return tmp_path / "store"


def files(root: Path, kind: str) -> list[Path]:
    return sorted((root / "compaction" / kind / TOPIC / "0").iterdir())


def offsets(root: Path) -> list[int]:
    with broker_on(root, compactionScheduleInternal="600000") as broker, broker.connect() as client:
        found = [record.queue_offset for record in read_all(client)]
        assert broker.stop() == 0
    return found


def damaged(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x55
    path.write_bytes(data)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "an entry": lambda root: damaged(files(root, "compactionCq")[0], 46 + 7),
    "a file of entries": lambda root: files(root, "compactionCq")[-1].unlink(),
    "a file of records": lambda root: files(root, "compactionLog")[-1].unlink(),
    "a record": lambda root: damaged(files(root, "compactionLog")[-1], 5),
}


@pytest.mark.parametrize("what", DAMAGES)
def test_damage_is_found_and_the_broker_repairs_it(root: Path, what: str) -> None:
    whole = offsets(root)
    assert verify(str(root)).findings == []
    DAMAGES[what](root)
    found = verify(str(root)).findings
    assert {each.kind for each in found} == {Kind.COMPACTION}
    assert all("compaction" in each.where.file for each in found)
    (root / "abort").touch()  # after a kill the last file is checked, others when they are read
    assert set(offsets(root)) >= {*whole} - {whole[1]}
    assert offsets(root) == whole
    assert verify(str(root)).findings == []


def test_a_backup_of_a_running_broker_has_the_newest_messages(tmp_path: Path) -> None:
    with broker_on(tmp_path / "store") as broker, broker.connect() as client:
        create(client)
        for n in range(4):
            fill(client, 100 * n, 100)
            copy = tmp_path / f"copy {n}"
            ran = run("backup", broker.store, copy, "--json")
            assert ran.code == 0, ran.err
        until = await_compaction(broker.store, 380)
        left = newest(range(400), 7, until)
        eventually(lambda: [record.queue_offset for record in read_all(client)] == left, 10)
    for n in range(4):
        found = offsets(tmp_path / f"copy {n}")
        assert found == sorted(set(found))
        assert set(found) >= {*range(100 * n + 93, 100 * n + 100)}
