"""A process that ends between two of its writes."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


class Killed(BaseException):
    """The process ends here."""


@contextmanager
def killed_after(writes: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """In this context `writes` calls of pwrite succeed, the next one raises Killed."""
    left, pwrite = writes, os.pwrite

    def killing(fd: int, data: bytes, offset: int) -> int:
        nonlocal left
        if left == 0:
            raise Killed
        left -= 1
        return pwrite(fd, data, offset)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", killing)
        yield
