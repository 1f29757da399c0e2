"""A full disk, wherever a job writes: one sentence, and with free space the same command resumes."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from firearrow.client.local_broker import LocalBroker
from firearrow.spark_tools.arrow.export_manifest import NAME, ExportManifest
from firearrow.spark_tools.base.errors import WriteFailed
from firearrow.spark_tools.jobs import copy_, export, replay
from tests.faults.small_disk import SmallDisk
from tests.spark.damaged_store import COUNT, fill
from tests.spark.replaying import bodies, job
from tests.spark.running import run
from tests.spark.stores import KnownStore
from tests.support.stores import open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = 4096
"""The least that a file takes."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with SmallDisk(tmp_path, mib=4, kind="tmpfs") as small:
        yield small


def test_no_space_for_the_plan_is_one_sentence(
    disk: SmallDisk, root: Path, target: LocalBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replaying = job(replay.cli, tmp_path, monkeypatch)
    words = ("--path", f"s={root}", "--topics", "T", "--target", target.name_server, "--create-topics")
    disk.fill()
    ended = replaying(*words, checkpoint="disk/c")
    assert ended.code == 1
    path = disk.path / "c" / "plan.json"
    assert ended.err == (
        f"firearrow: {path}: no space (No space left on device); free some space and run it again, it continues\n"
    )
    disk.free_space()
    went_on = replaying(*words, checkpoint="disk/c")
    assert went_on.code == 0, went_on.err
    assert {number: len(found) for number, found in bodies(target.store, "T").items()} == {0: COUNT, 1: COUNT}


def test_no_space_for_the_marks_ends_tasks_with_a_sentence_and_they_go_on(
    disk: SmallDisk, spark: "SparkSession", store: KnownStore, tmp_path: Path
) -> None:
    words = ("--path", store.root, "--to", tmp_path / "out", "--checkpoint", disk.path / "c", "--quiet")
    disk.fill(leave_bytes=PAGE)  # the plan has space
    ended = run(export.cli, *words)
    assert ended.code == 1
    output = " ".join(ended.out.split())
    assert f"failed: {disk.path / 'c' / 'marks'}/" in output
    assert "no space (No space left on device); free some space and run it again, it continues" in output
    disk.free_space()
    assert run(export.cli, *words).code == 0
    assert ExportManifest.read(tmp_path / "out").rows == len(store.messages)


def test_no_space_for_the_manifest_leaves_none(disk: SmallDisk) -> None:
    manifest = ExportManifest("export", "/s", 1, 2, {}, ("topic",), ("topic",), (), ())
    disk.fill()
    with pytest.raises(WriteFailed, match=r"_manifest\.json: no space .*free some space and run it again"):
        manifest.write(disk.path)
    assert not list(disk.path.glob(f"*{NAME}*"))
    disk.free_space()
    manifest.write(disk.path)
    assert ExportManifest.read(disk.path) == manifest


@pytest.mark.timeout(400)
def test_no_space_for_spark_s_checkpoint_of_a_copy_is_one_sentence(
    disk: SmallDisk, spark: "SparkSession", root: Path, target: LocalBroker
) -> None:
    words = (
        "--path",
        f"s={root}",
        "--topics",
        "T",
        "--target",
        target.name_server,
        "--create-topics",
        "--once",
        "--quiet",
        "--checkpoint",
        disk.path / "c",
    )
    assert run(copy_.cli, *words).code == 0
    with open_store(root) as store:
        fill(store, COUNT, COUNT)
    disk.fill()
    ended = run(copy_.cli, *words)
    assert ended.code == 1
    assert ended.err.count("\n") == 1
    assert "free some space" in ended.err
    disk.free_space()
    assert run(copy_.cli, *words).code == 0
    found = bodies(target.store, "T")
    assert {number: len(set(each)) for number, each in found.items()} == {0: 2 * COUNT, 1: 2 * COUNT}
