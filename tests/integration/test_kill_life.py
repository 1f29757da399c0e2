"""`kill -9` during pending work of every kind; the long form is `kill_life_rounds`."""

from pathlib import Path

import pytest

from tests.integration.kill_life_rounds import LifeRounds


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", pytest.param("SYNC_FLUSH", marks=pytest.mark.long)])
def test_kill_during_pending_work(tmp_path: Path, flush: str) -> None:
    rounds = LifeRounds(tmp_path / "store", flush)
    for _ in range(2):
        rounds.run()
    assert all(len(work.acknowledged) > 10 for work in rounds.works), [*map(str, rounds.works)]
