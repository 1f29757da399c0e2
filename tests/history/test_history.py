"""Kills under load of Python clients, with the history checked; the long form is `python -m tests.history`."""

from pathlib import Path

import pytest

from tests.history.rounds import Plan, Rounds


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", pytest.param("SYNC_FLUSH", marks=pytest.mark.long)])
def test_a_few_kills(tmp_path: Path, flush: str) -> None:
    with Rounds(tmp_path, Plan(flush=flush, longest_s=0.6)) as rounds:
        for _ in range(2):
            rounds.run()
        violations = rounds.settle()
        assert not violations, violations[:5]
        assert len(rounds.history.acked) > 100
        assert rounds.history.counts["committed"] > 10
        assert all(
            sum(delivery.group == group for delivery in rounds.history.deliveries) > 20
            for group in rounds.history.groups
        )


def test_a_few_promotions(tmp_path: Path) -> None:
    """A master is killed under SYNC_MASTER, its slave promoted, and it comes back as the slave."""
    with Rounds(tmp_path, Plan(pair=True, longest_s=0.6)) as rounds:
        for _ in range(2):
            rounds.run()
        violations = rounds.settle()
        assert not violations, violations[:5]
        assert sum(attempt.acknowledged for attempt in rounds.history.attempts.values()) > 100
        assert len(rounds.history.acked) > 50


def test_a_log_that_loses_its_end_is_noticed(tmp_path: Path) -> None:
    """Not the broker's doing: the last quarter of the acknowledged messages is removed while it is down."""
    with Rounds(tmp_path, Plan(longest_s=0.6)) as rounds:
        rounds.run()
        assert not rounds.judge()
        rounds.run(meanwhile=_cut_the_log)
        rounds.run()
        assert {"lost", "gone"} <= {violation.rule for violation in rounds.judge()}


def _cut_the_log(store: Path) -> None:
    segment = max((store / "commitlog").iterdir())
    data = segment.read_bytes()
    end = len(data.rstrip(b"\x00"))
    with segment.open("r+b") as file:
        file.seek(end * 3 // 4)
        file.write(bytes(end - end * 3 // 4))
