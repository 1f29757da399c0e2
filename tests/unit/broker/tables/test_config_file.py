"""ConfigFile: after any crash it loads a complete state or none, and keeps damaged files."""

from collections.abc import Callable
from pathlib import Path

import pytest

from firearrow.broker.base.errors import StartError
from firearrow.broker.tables.config_file import ConfigFile


def taker(into: list[bytes]) -> Callable[[bytes], None]:
    def take(text: bytes) -> None:
        if not text.startswith(b"{"):
            raise ValueError("no object")
        into.append(text)

    return take


def load(path: Path) -> tuple[bool, list[bytes]]:
    taken: list[bytes] = []
    return ConfigFile(path).load(taker(taken)), taken


def test_a_missing_file_loads_nothing(tmp_path: Path) -> None:
    assert load(tmp_path / "topics.json") == (False, [])
    (tmp_path / "topics.json").write_bytes(b"")
    assert load(tmp_path / "topics.json") == (False, [])


def test_the_previous_state_is_kept_as_backup(tmp_path: Path) -> None:
    path = tmp_path / "config" / "topics.json"
    ConfigFile(path).write(b"{1}")
    ConfigFile(path).write(b"{2}")
    assert path.read_bytes() == b"{2}"
    assert (path.parent / "topics.json.bak").read_bytes() == b"{1}"
    assert sorted(file.name for file in path.parent.iterdir()) == ["topics.json", "topics.json.bak"]
    assert load(path) == (True, [b"{2}"])


@pytest.mark.parametrize("main", [None, b"", b"torn"])
def test_the_backup_is_loaded(tmp_path: Path, main: bytes | None) -> None:
    path = tmp_path / "topics.json"
    (tmp_path / "topics.json.bak").write_bytes(b"{1}")
    if main is not None:
        path.write_bytes(main)
    assert load(path) == (True, [b"{1}"])
    if main:
        assert (tmp_path / "topics.json.damaged-1").read_bytes() == main
    ConfigFile(path).write(b"{2}")
    assert load(path) == (True, [b"{2}"])


@pytest.mark.parametrize(
    ("main", "backup"), [(b"torn", b"torn"), (b"torn", None), (b"torn", b""), (None, b"torn")]
)
def test_damage_without_a_backup_starts_empty_and_keeps_both(
    tmp_path: Path, main: bytes | None, backup: bytes | None
) -> None:
    path = tmp_path / "topics.json"
    texts = {path: main, tmp_path / "topics.json.bak": backup}
    for file, text in texts.items():
        if text is not None:
            file.write_bytes(text)
    assert load(path) == (False, [])
    for file, text in texts.items():
        kept = Path(f"{file}.damaged-1")
        assert (kept.read_bytes() if kept.exists() else None) == text
        assert not file.exists()


def test_an_unreadable_file_refuses_the_start(tmp_path: Path) -> None:
    path = tmp_path / "topics.json"
    path.mkdir()
    with pytest.raises(StartError, match="give the broker access"):
        load(path)


def test_a_write_that_fails_leaves_the_old_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "topics.json"
    ConfigFile(path).write(b"{1}")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        ConfigFile(path).write(b"{2}")
    assert load(path) == (True, [b"{1}"])
