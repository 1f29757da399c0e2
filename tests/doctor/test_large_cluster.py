"""The doctor at 1,000 topics of 250 groups each: a million queues of groups."""

import time
from pathlib import Path

from tests.doctor.large_cluster import GROUPS, QUEUES, TOPICS, large_cluster
from tests.doctor.running import doctor_of

WALKS, WALKS_MAX = 10, 45
"""Walks over all queues of all groups: the doctor takes as long as 20 to 28 of them, and took 80 when some checks
sorted all queues."""


def walks_s() -> float:
    """CPU time of the walks, which depends on the machine and on how busy it is."""
    began = time.process_time()
    for _ in range(WALKS):
        assert sum(queue for _ in range(TOPICS * GROUPS) for queue in range(QUEUES)) > 0
    return time.process_time() - began


def test_the_doctor_of_a_large_cluster(tmp_path: Path) -> None:
    """CPU time of this process, without its start; `python -m tests.doctor.large_cluster` prints more."""
    with large_cluster(tmp_path) as broker:
        walk_s = walks_s()
        began = time.process_time()
        said = doctor_of(broker)
        took_s = time.process_time() - began
        walk_s = (walk_s + walks_s()) / 2 / WALKS
        waiting = said.of("groups-without-members")
        assert len(waiting) == GROUPS
        assert all(f"{TOPICS:,} messages wait" in each["found"] for each in waiting)
        assert took_s < WALKS_MAX * walk_s
