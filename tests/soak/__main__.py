"""`python -m tests.soak`: a broker with a fast clock. Exit code 1: a promise was broken."""

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path

from tests.soak.soak import Plan, Soak

MINUTES_MAX = 7 * 24 * 60


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--spark", action="store_true", help="a Spark reader of the live folder, too")
    chosen = parser.parse_args()
    if not 0.1 <= chosen.minutes <= MINUTES_MAX:
        parser.error(f"--minutes: 0.1 to {MINUTES_MAX}, not {chosen.minutes}")
    home = Path(tempfile.mkdtemp(prefix="longlife-"))
    plan = Plan(chosen.minutes * 60, chosen.seed, chosen.spark)
    summary = Soak(home, plan, lambda line: print(line, file=sys.stderr, flush=True)).run()
    print(json.dumps(summary, indent=1))
    if summary["wrong"]:
        print(f"the store and its log are in {home}", file=sys.stderr)
        return 1
    shutil.rmtree(home)
    return 0


if __name__ == "__main__":
    sys.exit(main())
