"""Abreast: many files brought to the disk at once, by a few threads: the disk does then in one go what it would do one
by one. Knows no content; whoever calls waits until all is done. Any thread.
"""

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")

THREADS = 8
SERIAL_MAX = 32
"""So few are done by the caller alone."""


def for_each_parallel(work: Callable[[T], object], items: Sequence[T]) -> None:
    """`work(item)` for each, in no order, by several threads if they are many. The first error ends it: what was not
    begun stays undone, nothing is under way any more when it is raised."""
    left = iter(items)
    errors: list[BaseException] = []

    def take() -> None:
        for item in left:
            try:
                work(item)
            except BaseException as error:
                errors.append(error)
            if errors:
                return

    others = []
    for _ in range(THREADS - 1 if len(items) > SERIAL_MAX else 0):
        thread = threading.Thread(target=take, name="abreast", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no more threads are granted: these do it
            break
        others.append(thread)
    take()
    for thread in others:
        thread.join()
    if errors:
        raise errors[0]
