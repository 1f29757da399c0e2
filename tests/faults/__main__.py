"""`python -m tests.faults [--seconds T] [--seed S]`: random faults of disk, process and clock under load.

Ends with a count of the acknowledged messages, all of which were found, or with the first that was not."""

import argparse
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.faults.rounds import FaultRounds

ROUNDS_A_STORE = 10


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description="Random faults under load.")
    parser.add_argument("--seconds", type=float, default=60, help="how long, default 60")
    parser.add_argument(
        "--seed", type=int, default=1, help="of the first store; the same one draws the same faults"
    )
    given = parser.parse_args()
    counts: Counter[str] = Counter()
    deadline, seed, acknowledged = time.monotonic() + given.seconds, given.seed, 0
    while time.monotonic() < deadline:
        flush = ("ASYNC_FLUSH", "SYNC_FLUSH")[seed % 2]
        print(f"store of seed {seed}, {flush}", flush=True)
        with tempfile.TemporaryDirectory(prefix="firearrow-faults-") as folder:
            rounds = FaultRounds(Path(folder), seed, flush)
            while time.monotonic() < deadline and rounds.counts["round"] < ROUNDS_A_STORE:
                rounds.run()
            counts += rounds.counts
            acknowledged += rounds.acknowledged
        seed += 1
    print(
        f"{acknowledged} messages acknowledged, none lost; "
        + ", ".join(f"{name} {n}" for name, n in sorted(counts.items()))
    )


main()
