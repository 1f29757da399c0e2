"""Files that tests of the timer left open are closed: a test run has many of them."""

from collections.abc import Iterator

import pytest

from tests.life import timing


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    while timing.OPEN:
        timing.OPEN.pop().release()
