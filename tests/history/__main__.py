"""`python -m tests.history`: hundreds of kill rounds, their history checked. Exit code 1: a promise was broken."""

import argparse
import json
import math
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.history.rounds import Plan, run_rounds
from tests.support.broker_process import WAYS

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
    parser.add_argument(
        "--pair", action="store_true", help="a master and a slave, which is promoted in each round"
    )
    parser.add_argument("--longest", type=float, default=1.5, help="seconds between two kills at most")
    parser.add_argument("--within", type=float, default=math.inf, help="seconds in which rounds begin")
    parser.add_argument("--keep", type=Path, help="a new folder for histories and store, kept in any case")
    chosen = parser.parse_args()
    languages = tuple(chosen.clients.split(","))
    if not set(languages) <= set(LANGUAGES) or len(set(languages)) != len(languages):
        parser.error(f"--clients: some of {','.join(LANGUAGES)}, each once, not {chosen.clients!r}")
    if not 1 <= chosen.rounds <= ROUNDS_MAX:
        parser.error(f"--rounds: 1 to {ROUNDS_MAX}, not {chosen.rounds}")
    if not 0 < chosen.longest <= 3600:
        parser.error(f"--longest: more than 0 and at most 3600 seconds, not {chosen.longest}")
    if chosen.keep is not None and chosen.keep.exists():
        parser.error(f"--keep: {chosen.keep} is there already: name a new folder")
    plan = Plan(
        languages,
        chosen.flush,
        chosen.seed,
        longest_s=chosen.longest,
        settle_s=80 if languages == ("python",) else 160,
        settings=dict(option.split("=") for option in WAYS[chosen.way]),
        pair=chosen.pair,
    )
    return _run(plan, chosen)


def _run(plan: Plan, chosen: argparse.Namespace) -> int:
    keep: Path | None = chosen.keep
    home = Path(tempfile.mkdtemp(prefix="history-")) if keep is None else keep
    home.mkdir(parents=True, exist_ok=True)
    _progress(f"histories, logs and store are in {home}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(2))  # so that broker and clients end with us
    began = time.monotonic()
    violations, summary = run_rounds(home, plan, chosen.rounds, _progress, chosen.within)
    rules = dict(Counter(violation.rule for violation in violations))
    about = {
        "seed": plan.seed,
        "clients": plan.languages,
        "flush": plan.flush,
        "way": chosen.way,
        "pair": chosen.pair,
        "seconds": round(time.monotonic() - began, 1),
    }
    shown = [f"{violation.rule}: {violation.text}" for violation in violations[:SHOWN_MAX]]
    print(json.dumps(about | summary | {"violations": rules, "first": shown}, indent=1))
    if not violations and keep is None:
        shutil.rmtree(home)
    return 1 if violations else 0


def _progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
