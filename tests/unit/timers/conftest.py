"""Closes the timer files that tests left open: a test run has many of them."""

from collections.abc import Iterator

import pytest

from tests.support import timer_harness


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    while timer_harness.OPEN:
        timer_harness.OPEN.pop().release()
