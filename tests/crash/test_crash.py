"""Power cuts at the steps of a store's life, a few of each; `python -m tests.crash` tests any number."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash import folder, recording
from tests.crash.sweep import Sweep
from tests.crash.workload import WORKLOADS
from tests.support.examples import share

STATES = dict.fromkeys(WORKLOADS, share(25)) | {
    "pending_work": 6,
    "expired_files": 8,
    "slave_broker": 8,
    "whole_broker": 12,
}
"""States of a whole broker cost more: all their pending work is run to its end."""
REUSING = ("retention", "expired_files")
"""Where segments are recycled."""
SECONDS = 8.0


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recording.build(tmp_path_factory.mktemp("recorder"))


@pytest.mark.parametrize("name", sorted(WORKLOADS))
def test_nothing_acknowledged_is_lost_and_nothing_else_appears(name: str, library: Path) -> None:
    with folder.scratch() as scratch:
        ops = recording.record(library, scratch / "recorded", name, seed=1)
        assert recording.reused(ops) or name not in REUSING
        tally = Sweep(name, 1, ops, scratch, STATES[name] / len(ops), seconds=SECONDS).run()
    assert not tally.failures, "\n".join(map(str, tally.failures))
    assert tally.states >= STATES[name] // 4


def test_the_long_run_reports_what_it_tested(tmp_path: Path) -> None:
    summary = tmp_path / "summary.json"
    asked = ["--states", "15", "--seed", "3", "--workload", "config_files", "--json", str(summary)]
    subprocess.run([sys.executable, "-m", "tests.crash", *asked], check=True, timeout=60)
    report = json.loads(summary.read_text())
    assert report["states"] == report["by_workload"]["config_files"] > 10
    assert (report["failed"], report["failures"]) == (0, [])
