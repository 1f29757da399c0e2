"""The progress bar of `firearrow store`: one line of a terminal, deleted at the end; nothing elsewhere."""

import io

import pytest

from firearrow._native.base.progress_bar import ProgressBar, progress_bar


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
