"""A history's file is read while it is written: whole lines only, each once."""

from pathlib import Path

import pytest

from tests.history.events import LINE_BYTES_MAX, EventFile


def test_a_line_is_read_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "python.jsonl"
    file = EventFile(path)
    with path.open("w") as writing:
        for chunk, news in (('{"event":"do', 0), ('ne"}\n{"a":1}\n{', 2), ('"b":2}', 0), ("\n", 1), ("", 0)):
            writing.write(chunk)
            writing.flush()
            assert len(file.news()) == news


@pytest.mark.parametrize(
    ("text", "fault"), [("{]\n", "Expecting property name"), ("x" * (LINE_BYTES_MAX + 1), "a line of more")]
)
def test_a_malformed_event_is_reported_with_its_file(tmp_path: Path, text: str, fault: str) -> None:
    path = tmp_path / "java.jsonl"
    path.write_text(text)
    with pytest.raises(ValueError, match=rf"java\.jsonl: {fault}"):
        EventFile(path).news()
