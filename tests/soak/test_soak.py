"""The soak of `python -m tests.soak`, as short as is useful."""

from pathlib import Path

from tests.soak.soak import Plan, Soak


def test_a_broker_with_a_fast_clock_keeps_its_promises(tmp_path: Path) -> None:
    summary = Soak(tmp_path, Plan(3, seed=7, warm_s=0.5), lambda line: None).run()
    assert summary["wrong"] == []
    assert summary["verified"]
    assert summary["segments rolled"] > 10  # type: ignore[operator]
    assert summary["reported moves"] > 0  # type: ignore[operator]
    assert summary["times the disk was full"] == 1
