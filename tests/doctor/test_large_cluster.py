"""The doctor at 1,000 topics of 250 groups each: a million queues of groups."""

import time
from pathlib import Path

from tests.doctor.large_cluster import GROUPS, TOPICS, large_cluster
from tests.doctor.running import doctor_of

CPU_MAX_S = 3
"""Of this process, without its start: 1.1 to 1.7 s, by how busy the machine is; 2.4 to 3.4 when each check went through
all queues, and 5 when some sorted them."""


def test_the_doctor_of_a_large_cluster(tmp_path: Path) -> None:
    """CPU time, which a busy machine changes little; `python -m tests.doctor.large_cluster` prints more."""
    with large_cluster(tmp_path) as broker:
        began = time.process_time()
        said = doctor_of(broker)
        took_s = time.process_time() - began
        waiting = said.of("groups-without-members")
        assert len(waiting) == GROUPS
        assert all(f"{TOPICS:,} messages wait" in each["found"] for each in waiting)
        assert took_s < CPU_MAX_S
