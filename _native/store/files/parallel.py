"""Process many items with a few threads: concurrent fsyncs let the disk merge its writes.

Knows nothing about the items; the caller blocks until all are done. Any thread.
"""

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")

THREADS = 8
SERIAL_MAX = 32
"""Up to this many items the caller does alone."""


def for_each_parallel(work: Callable[[T], object], items: Sequence[T]) -> None:
    """Call `work(item)` for each item, in any order, with several threads if there are many. The first error
    is raised after all threads have stopped; items not started by then are left undone."""
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
        thread = threading.Thread(target=take, name="parallel", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no more threads available: go on with these
            break
        others.append(thread)
    take()
    for thread in others:
        thread.join()
    if errors:
        raise errors[0]
