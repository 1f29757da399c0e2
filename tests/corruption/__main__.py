"""`python -m tests.corruption [--rounds N] [--seed S]`: damages small stores at random and checks what they do."""

import argparse
import faulthandler
import sys
import time

from tests.corruption.fuzzer import run


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.corruption", description=__doc__)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    faulthandler.enable()
    began = time.monotonic()

    def progress(text: str) -> None:
        if sys.stderr.isatty():
            print(f"\r{text}", end="", file=sys.stderr, flush=True)

    results = run(given.rounds, given.seed, progress)
    summary = ", ".join(f"{count} {what}" for what, count in sorted(results.items()))
    print(f"{given.rounds} rounds, seed {given.seed}: {summary}; {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
