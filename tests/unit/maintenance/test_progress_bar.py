"""The progress bar of `firearrow store`: one line of a terminal, deleted at the end; nothing elsewhere."""

import io

import pytest

from firearrow._native.base.progress_bar import ProgressBar, messages, progress_bar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_it_shows_share_rate_and_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, now = Terminal(), 100.0
    monkeypatch.setattr("sys.stderr", terminal)
    bar = ProgressBar("log", 40_000_000, lambda: now)
    now += 0.05
    bar.advance(5_000_000)  # too early to be drawn
    now += 1.95
    bar.advance(5_000_000)
    drawn = terminal.getvalue().split("\r\x1b[K")[1:]
    assert [line.replace(" ", "") for line in drawn] == [
        "log[]0%0.0of40.0MB,0.0MB/s",
        "log[########]25%10.0of40.0MB,5.0MB/s6sleft",
    ]


@pytest.mark.parametrize(("columns", "bar"), [(200, 30), (80, 12), (72, 5), (71, 0), (20, 0), (0, 0)])
def test_it_fits_into_a_line_of_the_terminal(monkeypatch: pytest.MonkeyPatch, columns: int, bar: int) -> None:
    """What continues on the next line would not be erased."""
    monkeypatch.setattr("sys.stderr", Terminal())
    drawn = ProgressBar("export orders", 80_020, lambda: 1.0, text=messages)
    monkeypatch.setattr(drawn, "_done", 40_010)
    text = drawn.text(3.0, columns)
    assert len(text) < max(columns, 1)
    assert text.count("#") == round(bar / 2)
    assert text.startswith("export orders"[: max(columns - 1, 0)])


@pytest.mark.parametrize(("quiet", "total"), [(False, 10), (True, 10), (False, 0)])
def test_a_terminal_has_nothing_left_of_it(monkeypatch: pytest.MonkeyPatch, quiet: bool, total: int) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    with progress_bar("log", total, quiet=quiet) as advance:
        advance(10)
    shown = terminal.getvalue()
    assert shown.endswith("\r\x1b[K") if total and not quiet else shown == ""


def test_a_file_gets_none(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar("log", 10, quiet=False) as advance:
        advance(10)
    assert capsys.readouterr().err == ""
