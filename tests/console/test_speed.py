"""The short form of `python -m tests.console.speed`. Bounds are CPU, because the machine may have other work, with some
reserve."""

from tests.console.speed import PAGES, main


def test_speed() -> None:
    figures = main(["--small"])
    assert figures["first page, CPU s"] < 1.0
    assert max(figures[f"{path}, CPU ms"] for path in PAGES) < 50
    assert figures["memory at most, MB"] < 60
