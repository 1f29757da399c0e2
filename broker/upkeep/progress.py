"""Progress of a tool on stderr: a bar at a terminal, nothing elsewhere. Rich paints in a thread of its own."""

import contextlib
import sys
from collections.abc import Callable, Iterator

Advance = Callable[[int], None]
"""So many bytes, or things, more are done."""
BAR_FROM = 1


@contextlib.contextmanager
def progress_bar(what: str, total: int, *, quiet: bool) -> Iterator[Advance]:
    """A bar of `total` while it lasts."""
    if quiet or total < BAR_FROM or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich import progress as bar  # noqa: PLC0415 (nothing of it is needed without a terminal)
    from rich.console import Console  # noqa: PLC0415

    speed = (bar.DownloadColumn(), bar.TransferSpeedColumn(), bar.TimeRemainingColumn())
    columns = (bar.TextColumn("{task.description}"), bar.BarColumn(), *speed)
    with bar.Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(what, total=total)
        yield lambda count: bars.advance(task, count)
