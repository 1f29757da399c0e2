"""`backup`: a copy is a valid store, also of a running broker; it has what was acknowledged before it began."""

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from firearrow._native.base import last_backup
from firearrow._native.store.files.errors import StoreUnreadable
from firearrow.broker.maintenance import backup as module
from firearrow.broker.maintenance.backup import PREVIOUS, UNFINISHED, BackupOptions, backup
from firearrow.broker.maintenance.backup_manifest import NAME, Manifest
from firearrow.broker.maintenance.stat import stat
from firearrow.broker.maintenance.verify import verify
from tests.golden import unpacked
from tests.maintenance.backup_rounds import one_round
from tests.maintenance.damaged import LOG_0, QUEUES, body, files_of, flip, made
from tests.maintenance.tool import run
from tests.support.stores import bodies, drop_segments, needs_zeroing, open_store, put


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "copy"


def inode(path: Path) -> int:
    return path.stat().st_ino


def all_bodies(root: Path) -> dict[tuple[str, int], list[bytes]]:
    with open_store(root) as store:
        return {queue: bodies(store, *queue) for queue in QUEUES}


def expected(messages: int) -> dict[tuple[str, int], list[bytes]]:
    return {
        queue: [body(number) for number in range(at, messages, len(QUEUES))]
        for at, queue in enumerate(QUEUES)
    }


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# ---- a stopped store ----


def test_a_stopped_store_is_copied_whole_and_full_files_are_shared(root: Path, target: Path) -> None:
    made(root)
    before = files_of(root)
    manifest, verified = backup(str(root), target, BackupOptions(verify=True))
    assert verified is not None
    assert verified.clean, verified.findings
    logs = names(root / "commitlog")
    assert names(target / "commitlog") == logs
    shared = [name for name in logs if inode(root / "commitlog" / name) == inode(target / "commitlog" / name)]
    assert shared == logs[:-1]
    assert manifest.linked == 4096 * len(shared)
    for name in set(before) - {"lock"}:
        path = target / name
        assert path.read_bytes() == (root / name).read_bytes(), name
        assert name.startswith("commitlog") or inode(path) != inode(root / name), name
    assert not (target / "lock").exists()
    after = files_of(root)
    assert after.pop(f"config/{last_backup.NAME}")
    assert after == before
    restored = shutil.copytree(target, target.parent / "restored")
    assert all_bodies(restored) == expected(126)
    assert verify(str(target)).clean, "what was restored is another store"


def test_a_killed_store_is_copied_as_it_is_and_recovers(root: Path, target: Path) -> None:
    made(root)
    store = open_store(root)
    store.prepare()
    store.abandon()
    end = len(names(root / "commitlog"))
    backup(str(root), target)
    assert (target / "abort").read_bytes() == (root / "abort").read_bytes()
    assert len(names(target / "commitlog")) == end
    active = names(root / "commitlog")[verify(str(root)).seen.log.end // 4096]
    assert inode(root / "commitlog" / active) != inode(target / "commitlog" / active), (
        "it is written to again"
    )
    assert all_bodies(target) == expected(126)


def test_apaches_store_is_copied_and_clean(tmp_path: Path) -> None:
    apache = unpacked("store-apache", tmp_path)
    ran = run("backup", apache, tmp_path / "copy", "--verify", "--json", "--quiet")
    assert ran.code == 0, ran
    assert ran.report["verified"]["clean"]
    assert ran.report["linked"] == 2 * 262144
    assert (tmp_path / "copy/compaction/position-checkpoint").exists()


def test_a_second_run_copies_only_new_data(root: Path, target: Path) -> None:
    made(root)
    wanted = BackupOptions(links=False, verify=True)
    first, _ = backup(str(root), target, wanted)
    assert first.linked == 0
    assert inode(root / LOG_0) != inode(target / LOG_0)
    kept = inode(target / LOG_0)
    made(root, 63, start=126)
    second, verified = backup(str(root), target, wanted)
    assert verified is not None
    assert verified.clean
    assert second.kept == 4096 * len(first.sealed)
    assert inode(target / LOG_0) == kept
    assert names(target.parent) == ["copy", "store"]
    assert all_bodies(shutil.copytree(target, target.parent / "restored")) == expected(189)


def test_a_backup_beside_another_shares_its_files_and_does_not_change_it(
    root: Path, target: Path, tmp_path: Path
) -> None:
    made(root)
    backup(str(root), target, BackupOptions(links=False))
    before = files_of(target)
    made(root, 63, start=126)
    other, _ = backup(str(root), tmp_path / "next", BackupOptions(beside=target, links=False))
    assert other.kept > 0
    assert inode(tmp_path / "next" / LOG_0) == inode(target / LOG_0)
    assert files_of(target) == before
    assert all_bodies(shutil.copytree(target, tmp_path / "one")) == expected(126)
    assert all_bodies(shutil.copytree(tmp_path / "next", tmp_path / "two")) == expected(189)


def test_a_replaced_file_of_the_source_is_copied_again(root: Path, target: Path) -> None:
    positions = made(root)
    backup(str(root), target, BackupOptions(links=False))
    flip(root / LOG_0, positions[8] + 90)
    again, verified = backup(str(root), target, BackupOptions(links=False, verify=True))
    assert verified is not None
    assert not verified.clean
    assert again.kept < again.log_end
    assert verify(str(target)).clean, "a copy with findings does not replace a good one"
    assert verify(str(target) + UNFINISHED).seen.findings.totals == {"bad CRC": 1}


def test_without_links_everything_is_copied(
    root: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(root)

    def refused(*_: str) -> None:
        raise PermissionError(1, "no links here")

    monkeypatch.setattr(os, "link", refused)
    manifest, verified = backup(str(root), target, BackupOptions(verify=True))
    assert (manifest.linked, manifest.kept) == (0, 0)
    assert verified is not None
    assert verified.clean


# ---- a running broker ----


def test_copies_under_load_contain_what_was_acknowledged_before(tmp_path: Path) -> None:
    sent, held, _ = one_round(tmp_path, random.Random(8), copies=2, most=200)
    assert sent >= held // 2 > 0


def test_files_that_retention_deletes_meanwhile_are_left_out(
    root: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(root)
    copied: Callable[..., int | None] = module.copy_file

    def taken(source: str, *rest: object, **more: object) -> int | None:
        if source.endswith(f"{8192:020d}"):
            for name in names(root / "commitlog")[:3]:
                (root / "commitlog" / name).unlink()
        return copied(source, *rest, **more)

    monkeypatch.setattr(module, "copy_file", taken)
    manifest, verified = backup(str(root), target, BackupOptions(links=False, verify=True))
    assert manifest.log_start == 12288
    assert names(target / "commitlog")[0] == f"{12288:020d}"
    assert verified is not None
    assert verified.clean, verified.findings


# ---- refusals and interruptions ----


def test_an_interrupted_run_keeps_the_previous_backup(
    root: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(root)
    backup(str(root), target)
    before = files_of(target)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module, "sync_tree", interrupted)
        ran = run("backup", root, target)
        assert (ran.code, ran.err) == (130, "firearrow store: interrupted\n")
    assert files_of(target) == before
    assert names(target.parent) == ["copy", "store"]
    target.rename(str(target) + PREVIOUS)  # as if the power had failed between the last two steps
    backup(str(root), target)
    assert names(target.parent) == ["copy", "store"]


def test_targets_that_are_something_else_are_refused(root: Path, tmp_path: Path) -> None:
    made(root)
    full = tmp_path / "full"
    full.mkdir()
    (full / "photo.jpg").write_bytes(b"x")
    used = tmp_path / "used"
    backup(str(root), used)
    open_store(used).close()
    odd = tmp_path / "odd"
    odd.mkdir()
    (odd / NAME).write_bytes(b'{"format":1,"sealed":[]}')
    sentences = {
        full: "is not empty and not a backup",
        used: "was used by a broker",
        odd: "is not the manifest of a backup",
        root: "must not contain each other",
        root / "inside": "must not contain each other",
    }
    for target, says in sentences.items():
        ran = run("backup", root, target)
        assert ran.code == 3, ran
        assert says in ran.err
        assert ran.err.count("\n") == 1
    assert run("backup", root, tmp_path / "new", "--beside", full).code == 3
    assert run("backup", full, tmp_path / "new").code == 3
    assert (full / "photo.jpg").exists()
    in_the_way = tmp_path / f"new{UNFINISHED}"
    in_the_way.mkdir()
    (in_the_way / "mine").touch()
    with pytest.raises(StoreUnreadable, match="is in the way"):
        backup(str(root), tmp_path / "new")
    assert (in_the_way / "mine").exists()


def test_backup_json_lists_what_was_copied(root: Path, target: Path) -> None:
    made(root)
    manifest, _ = backup(str(root), target)
    assert Manifest.of(target) == manifest
    assert (manifest.log_start, manifest.live, manifest.source) == (0, False, str(root))
    assert manifest.log_end == verify(str(root)).seen.log.end


def test_a_segment_to_be_recycled_is_not_copied(root: Path, target: Path) -> None:
    needs_zeroing(root.parent)
    made(root)
    store = open_store(root)
    store.flush_queues()
    assert drop_segments(store, at_most=2) == 2
    assert (root / "spare").exists()
    assert stat(str(root))["sizes"]["spare"][0] == 4096
    assert verify(str(root)).clean
    backup(str(root), target, BackupOptions(verify=True))
    assert not (target / "spare").exists()
    kept = files_of(target)
    assert drop_segments(store, at_most=2) == 2
    for number in range(126, 189):
        put(store, body(number), *QUEUES[number % len(QUEUES)])
        store.write()
    store.close()
    assert files_of(target) == kept
