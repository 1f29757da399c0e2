"""The soak of `python -m tests.soak`, as short as can be told anything by."""

from pathlib import Path

from tests.soak.soak import Plan, Soak


def test_a_broker_that_lives_fast_keeps_its_promises(tmp_path: Path) -> None:
    summary = Soak(tmp_path, Plan(3, seed=7, warm_s=0.5), lambda line: None).run()
    assert summary["wrong"] == []
    assert summary["verified"]
    assert summary["segments rolled"] > 10  # type: ignore[operator]
    assert summary["told moves"] > 0  # type: ignore[operator]
    assert summary["times the disk was full"] == 1
