"""A round of random faults; `python -m tests.faults` does many."""

from pathlib import Path

from tests.faults.rounds import FaultRounds


def test_random_faults_lose_nothing_acknowledged(tmp_path: Path) -> None:
    rounds = FaultRounds(tmp_path, seed=7, flush="SYNC_FLUSH")
    rounds.run()
    assert rounds.acknowledged > 0
