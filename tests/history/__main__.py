"""`python -m tests.history`: kill rounds by the hundred, their history checked. Exit code 1: a promise was broken."""

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.history.rounds import Plan, run_rounds
from tests.process.running import WAYS

LANGUAGES = ("python", "java", "go")
SHOWN_MAX = 20
ROUNDS_MAX = 1_000_000


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.history", description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--clients", default="python", help="of python,java,go, separated by commas")
    parser.add_argument("--flush", choices=("ASYNC_FLUSH", "SYNC_FLUSH"), default="ASYNC_FLUSH")
    parser.add_argument("--way", choices=tuple(WAYS), default="engine", help="how requests come to the store")
    parser.add_argument("--longest", type=float, default=1.5, help="seconds between two kills at most")
    parser.add_argument("--keep", type=Path, help="a new folder for histories and store, kept in any case")
    chosen = parser.parse_args()
    languages = tuple(chosen.clients.split(","))
    if not set(languages) <= set(LANGUAGES) or len(set(languages)) != len(languages):
        parser.error(f"--clients: some of {','.join(LANGUAGES)}, each once, not {chosen.clients!r}")
    if not 1 <= chosen.rounds <= ROUNDS_MAX:
        parser.error(f"--rounds: 1 to {ROUNDS_MAX}, not {chosen.rounds}")
    if not 0 < chosen.longest <= 3600:
        parser.error(f"--longest: more than 0 and at most 3600 seconds, not {chosen.longest}")
    plan = Plan(
        languages, chosen.flush, chosen.seed, longest_s=chosen.longest,
        settle_s=80 if languages == ("python",) else 160,
        settings=dict(option.split("=") for option in WAYS[chosen.way]),
    )  # fmt: skip
    return _run(plan, chosen.rounds, chosen.way, chosen.keep)


def _run(plan: Plan, count: int, way: str, keep: Path | None) -> int:
    home = Path(tempfile.mkdtemp(prefix="history-")) if keep is None else keep
    home.mkdir(parents=True, exist_ok=keep is None)
    began = time.monotonic()
    violations, summary = run_rounds(home, plan, count, lambda line: print(line, file=sys.stderr, flush=True))
    rules = dict(Counter(violation.rule for violation in violations))
    about = {
        "rounds": count, "seed": plan.seed, "clients": plan.languages, "flush": plan.flush, "way": way,
        "seconds": round(time.monotonic() - began, 1),
    }  # fmt: skip
    shown = [f"{violation.rule}: {violation.text}" for violation in violations[:SHOWN_MAX]]
    print(json.dumps(about | summary | {"violations": rules, "first": shown}, indent=1))
    if violations or keep is not None:
        print(f"histories, logs and store are in {home}", file=sys.stderr)
    else:
        shutil.rmtree(home)
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
