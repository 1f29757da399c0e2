"""`repair`: afterwards a verification is clean, the store opens, undamaged data is there."""

import json
from pathlib import Path

import pytest

from firearrow._native.store_checks.findings import Kind
from firearrow.broker.maintenance.backup import backup
from firearrow.broker.maintenance.dump import RecordQuery, records
from firearrow.broker.maintenance.repair import LOG_DAMAGE
from firearrow.broker.maintenance.verify import verify
from tests.golden import unpacked
from tests.maintenance.damaged import (
    LOG_0,
    MESSAGES,
    QUEUES,
    body,
    files_of,
    flip,
    made,
    overwrite,
    queue_file,
    write_config,
)
from tests.maintenance.damages import (
    DAMAGES,
    Damage,
    bad_body,
    entry_beyond,
    lost_queue_file,
    wrong_entry,
)
from tests.maintenance.tool import run
from tests.support.broker_process import BrokerProcess
from tests.support.client_socket import ClientSocket
from tests.support.requests import pull, send
from tests.support.requests import records as wire_records
from tests.support.stores import bodies, open_store

MENDED_BY_A_START = {Kind.JOURNAL}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


def log_bodies(root: Path) -> dict[int, bytes]:
    """Physical offset → body of each message; filler records have none."""
    said: list[str] = []
    return {
        record.physical_offset: record.body
        for record in records(str(root), RecordQuery(), said.append)
        if record.topic in ("Orders", "Payments")
    }


def expected() -> dict[tuple[str, int], list[bytes]]:
    return {queue: [body(n) for n in range(at, MESSAGES, len(QUEUES))] for at, queue in enumerate(QUEUES)}


@pytest.mark.parametrize(("damage", "kinds"), DAMAGES, ids=lambda each: getattr(each, "__name__", ""))
def test_a_repair_leaves_a_clean_store_with_all_readable_messages(
    damage: Damage, kinds: set[Kind], root: Path
) -> None:
    damage(root, made(root))
    left = log_bodies(root)
    kinds = {each.kind for each in verify(str(root)).findings}
    ran = run("repair", root, "--yes", "--json", "--drop-damaged", "--reset-offsets")
    after = verify(str(root))
    assert {each.kind for each in after.findings} <= MENDED_BY_A_START, after.findings
    assert ran.code == (0 if after.clean else 1), ran
    assert log_bodies(root) == left
    if not kinds & LOG_DAMAGE:
        assert len(left) == MESSAGES
        with open_store(root) as store:
            assert {queue: bodies(store, *queue) for queue in QUEUES} == expected()
    else:
        with open_store(root) as store:
            found = sorted(each for queue in QUEUES for each in bodies(store, *queue))
        assert found == sorted(left.values())


def test_originals_are_kept(root: Path) -> None:
    positions = made(root)
    queue = wrong_entry(root, positions)
    was = queue.read_bytes()
    checkpoint = (root / "checkpoint").read_bytes()
    report = run("repair", root, "--yes", "--json").report
    removed = Path(report["removed"])
    assert removed.parent == root
    assert removed.name.startswith("removed-")
    assert (removed / queue.relative_to(root)).read_bytes() == was
    assert (removed / "checkpoint").read_bytes() == checkpoint
    assert "checkpoint" in report["kept"]
    assert report["after"]["clean"]


def test_damage_inside_the_log_needs_an_option(root: Path) -> None:
    bad_body(root, made(root))
    before = files_of(root)
    ran = run("repair", root, "--yes")
    assert ran.code == 3
    assert "the log is damaged in 1 places" in ran.err
    assert "--drop-damaged" in ran.err
    assert files_of(root) == before


def test_a_torn_tail_is_truncated_and_kept(root: Path) -> None:
    last = made(root)[-1]
    path = sorted((root / "commitlog").iterdir())[-1]
    overwrite(path, last - int(path.name) + 4, bytes(8))
    report = run("repair", root, "--yes", "--json").report
    assert report["after"]["clean"], report
    assert report["after"]["log"]["end"] == last
    kept = (Path(report["removed"]) / path.relative_to(root)).read_bytes()
    assert kept.rstrip(b"\0")[-20:] in kept[last - int(path.name) :]
    assert body(MESSAGES - 1)[:20] in kept
    with open_store(root) as store:
        assert len(bodies(store, "Payments", 0)) == MESSAGES // 3 - 1


def test_the_log_is_truncated_where_requested(root: Path) -> None:
    positions = made(root)
    at = positions[60]
    ran = run("repair", root, "--yes", "--json", "--cut-log-at", str(at), "--reset-offsets")
    assert ran.code == 0, ran
    assert ran.report["after"]["log"]["end"] == at
    assert list(log_bodies(root)) == positions[:60]
    kept = Path(ran.report["removed"]) / "commitlog"
    whole = b"".join(path.read_bytes() for path in sorted(kept.iterdir()))
    assert all(body(number) in whole for number in range(60, MESSAGES))
    with open_store(root) as store:
        assert bodies(store, "Orders", 0) == [body(number) for number in range(0, 60, 3)]
    inside = run("repair", root, "--yes", "--cut-log-at", str(positions[3] + 1))
    assert inside.code == 3
    assert "no record begins there" in inside.err
    assert run("repair", root, "--yes", "--cut-log-at", str(1 << 40)).code == 3


def test_offsets_beyond_the_end_are_reset_only_if_requested(root: Path) -> None:
    made(root)
    write_config(
        root, "consumerOffset.json", b'{"offsetTable":{"Orders@G":{0:5000,1:7}},"dataVersion":{"counter":3}}'
    )
    ran = run("repair", root, "--yes")
    assert ran.code == 1
    assert "--reset-offsets" in ran.out
    assert run("repair", root, "--yes", "--reset-offsets").code == 0
    report = run("stat", root, "--json").report
    assert {row["queue_id"]: row["offset"] for row in report["groups"]} == {0: 42, 1: 7}
    assert report["versions"]["consumerOffset.json"] == {"counter": 3}


def test_a_dry_run_and_the_answer_no_change_nothing(root: Path) -> None:
    lost_queue_file(root, made(root))
    before = files_of(root)
    ran = run("repair", root, "--dry-run")
    assert ran.code == 1
    assert "rebuild queues, index and checkpoint from the log" in ran.out
    assert files_of(root) == before
    assert run("repair", root).code == 2, "no confirmation"
    assert files_of(root) == before


def test_a_clean_store_is_not_changed(root: Path) -> None:
    made(root)
    before = files_of(root)
    assert run("repair", root, "--yes").code == 0
    assert files_of(root) == before


def test_a_killed_store_stays_killed_for_its_journal(root: Path) -> None:
    positions = made(root)
    open_store(root).abandon()
    word = (root / "abort").read_bytes()
    entry_beyond(root, positions)
    assert run("repair", root, "--yes").code == 0
    assert (root / "abort").read_bytes() == word


def test_a_backup_that_shares_files_is_not_changed(root: Path, tmp_path: Path) -> None:
    positions = made(root)
    backup(str(root), tmp_path / "copy")
    before = (tmp_path / "copy" / LOG_0).read_bytes()
    assert run("repair", root, "--yes", "--cut-log-at", str(positions[3]), "--reset-offsets").code == 0
    assert (tmp_path / "copy" / LOG_0).read_bytes() == before
    assert (root / LOG_0).read_bytes() != before
    assert verify(str(tmp_path / "copy")).clean


def test_apaches_store_is_repaired(tmp_path: Path) -> None:
    apache = unpacked("store-apache", tmp_path)
    ends = {
        (row["topic"], row["queueId"]): row["end"] for row in run("stat", apache, "--json").report["queues"]
    }
    flip(queue_file(apache, "GoldenFill", 0), 25)
    flip(sorted((apache / "index").iterdir())[0], 40 + 4 * 1000 + 20 * 5 + 2)
    (apache / "checkpoint").unlink()
    (apache / "config" / "topics.json").write_bytes(b"{")
    assert run("verify", apache).code == 1
    ran = run("repair", apache, "--yes", "--json")
    assert ran.code == 0, ran
    now = {
        (row["topic"], row["queueId"]): row["end"] for row in run("stat", apache, "--json").report["queues"]
    }
    assert now == ends
    assert "GoldenFill" in json.loads((apache / "config" / "topics.json").read_bytes())["topicConfigTable"]


def test_a_broker_starts_on_a_repaired_store(root: Path) -> None:
    with BrokerProcess(root) as broker:
        with broker.connect() as connection:
            for number in range(30):
                assert send(connection, "Orders", body(number), number % 2).code == 0
        assert broker.stop() == 0
    position = next(
        record.physical_offset for record in records(str(root), RecordQuery("Orders", 1, 7), print)
    )
    overwrite(root / LOG_0, position + 4, b"\xee" * 4)
    assert run("repair", root, "--yes", "--drop-damaged").code == 0
    with BrokerProcess(root) as broker:
        with broker.connect() as connection:
            assert pulled(connection, 0) == [body(number) for number in range(0, 30, 2)]
            assert pulled(connection, 1) == [body(number) for number in range(1, 30, 2) if number != 15]
            assert send(connection, "Orders", b"again", 1).code == 0
            assert pulled(connection, 1)[-1] == b"again"
        assert broker.stop() == 0
    assert verify(str(root)).clean


def pulled(connection: ClientSocket, queue_id: int) -> list[bytes]:
    """A whole queue, by pulls."""
    found: list[bytes] = []
    at = 0
    while (answer := pull(connection, "Orders", at, queue_id)).code != 19:
        found += [record.body for record in wire_records(answer.body)]
        assert int(answer.ext["nextBeginOffset"]) > at
        at = int(answer.ext["nextBeginOffset"])
    return found


def test_a_store_in_use_is_not_repaired(root: Path) -> None:
    with BrokerProcess(root) as broker:
        ran = run("repair", broker.store, "--yes")
        assert ran.code == 3
        assert "is in use by a broker" in ran.err
        assert broker.stop() == 0
