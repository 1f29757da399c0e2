"""A process that ends between two of its writes."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


class Killed(BaseException):
    """The process ends here."""


@contextmanager
def killed_behind(writes: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """While this is entered so many calls of pwrite are good, the next one raises Killed."""
    left, pwrite = writes, os.pwrite

    def killing(fd: int, data: bytes, place: int) -> int:
        nonlocal left
        if left == 0:
            raise Killed
        left -= 1
        return pwrite(fd, data, place)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", killing)
        yield
