"""A few seconds of `python -m tests.faults.switches`."""

from pathlib import Path

import pytest

from tests.faults.switches import run

SECONDS = 2.0


@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_no_thread_fails_over_what_another_changes(tmp_path: Path, flush: str) -> None:
    assert run(tmp_path / "store", flush, SECONDS) > 0
