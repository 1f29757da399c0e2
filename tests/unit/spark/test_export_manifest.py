"""A manifest is whole or not there, reports what is wrong with its files, and never leads out of its folder."""

from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from firearrow.spark_tools.arrow.export_manifest import (
    NAME,
    ExportedFile,
    ExportedRange,
    ExportManifest,
    InvalidManifest,
    file_crc,
)


def written(folder: Path, content: bytes = b"rows") -> ExportManifest:
    (folder / "topic=T").mkdir()
    part = folder / "topic=T" / "part.parquet"
    part.write_bytes(content)
    file = ExportedFile("topic=T/part.parquet", 3, len(content), file_crc(part), 0)
    manifest = ExportManifest(
        "export",
        "/stores/b",
        1,
        2,
        {"topics": "T"},
        ("topic", "body"),
        ("topic",),
        (ExportedRange("T", "b", 0, 5, 10, 3, 0),),
        (file,),
        ("T@b:0[0..5)",),
    )
    manifest.write(folder)
    return manifest


def test_it_is_read_as_it_was_written(tmp_path: Path) -> None:
    manifest = written(tmp_path)
    found = ExportManifest.read(tmp_path)
    assert found == manifest
    assert (found.rows, found.bytes) == (3, 4)
    found.check_files(tmp_path, contents=True)
    assert {path.name for path in tmp_path.iterdir()} == {NAME, "topic=T"}


def test_a_folder_without_one_is_not_complete(tmp_path: Path) -> None:
    with pytest.raises(InvalidManifest, match="is not finished; run it again"):
        ExportManifest.read(tmp_path)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"version": 2}, "version 2"),
        ({"files": [{"path": "x"}]}, "not a valid manifest"),
        ({"files": "none"}, "not a valid manifest"),
        ({"rows": None, "job": None, "ranges": 7}, "not a valid manifest"),
    ],
)
def test_another_file_of_that_name_is_refused(
    tmp_path: Path, change: dict[str, object], expected: str
) -> None:
    written(tmp_path)
    found = orjson.loads((tmp_path / NAME).read_bytes())
    (tmp_path / NAME).write_bytes(orjson.dumps(found | change))
    with pytest.raises(InvalidManifest, match=expected):
        ExportManifest.read(tmp_path)


def test_text_that_is_no_json_is_refused(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(b'{"version": 1')
    with pytest.raises(InvalidManifest, match=NAME):
        ExportManifest.read(tmp_path)


@pytest.mark.parametrize("path", ["/etc/passwd", "../other", "a/../../b", ""])
def test_a_path_stays_below_the_folder(tmp_path: Path, path: str) -> None:
    manifest = written(tmp_path)
    replace(manifest, files=(replace(manifest.files[0], path=path),)).write(tmp_path)
    with pytest.raises(InvalidManifest, match="path"):
        ExportManifest.read(tmp_path)


def test_files_that_changed_are_named(tmp_path: Path) -> None:
    manifest = written(tmp_path)
    part = tmp_path / "topic=T" / "part.parquet"
    part.write_bytes(b"rowz")
    manifest.check_files(tmp_path)
    with pytest.raises(InvalidManifest, match=r"part\.parquet: crc"):
        manifest.check_files(tmp_path, contents=True)
    part.write_bytes(b"row")
    with pytest.raises(InvalidManifest, match="3 bytes, the manifest has 4"):
        manifest.check_files(tmp_path)
    part.unlink()
    with pytest.raises(InvalidManifest, match="No such file"):
        manifest.check_files(tmp_path)
