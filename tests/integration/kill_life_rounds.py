"""`kill -9` during pending work of every kind: delays, timers, sent-back messages, offsets, transactions, pops.

Each round loads, kills, restarts, and waits for all that was pending: no acknowledged message is lost, no delayed or
sent-back one is delivered twice, decisions are kept, and so are acknowledged offsets and acknowledgements.
`python -m tests.integration.kill_life_rounds --rounds 100 [--flush SYNC_FLUSH]` does many; test_kill_life does a few.
"""

import argparse
import random
import tempfile
import threading
from pathlib import Path

from tests.integration.pending_work import Commits, Delays, Pops, SentBack, Timers, Transactions, Work
from tests.support.broker_process import BrokerProcess
from tests.support.startup import QUICK_REVIVE

KINDS: tuple[type[Work], ...] = (Delays, Timers, SentBack, Commits, Transactions, Pops)
SETTINGS = {
    "messageDelayLevel": "1s 2s",
    "timerPrecisionMs": "100",
    "transactionTimeOut": "500",
    "brokerName": "b",
    "transactionCheckInterval": "200",
    "transactionCheckMax": "1000000",
    "reviveInterval": "100",
    "mappedFileSizeCommitLog": "4194304",
    "mappedFileSizeConsumeQueue": "20000",
}


class LifeRounds:
    """One store through many kills."""

    def __init__(self, store: Path, flush: str, kinds: tuple[type[Work], ...] = KINDS, seed: int = 1) -> None:
        self.store = store
        self.works = [kind() for kind in kinds]
        self._arguments = [
            word
            for key, value in (SETTINGS | {"flushDiskType": flush}).items()
            for word in ("--set", f"{key}={value}")
        ]
        self._draw = random.Random(seed)
        self._over = threading.Event()
        self._faults: list[BaseException] = []

    def run(self) -> None:
        """One round; the kill comes while the first messages of the round are being delivered, or before."""
        self._over.clear()
        with self._start() as broker:
            threads = [threading.Thread(target=self._load, args=(broker, work)) for work in self.works]
            for thread in threads:
                thread.start()
            self._over.wait(self._draw.uniform(0.3, 2.2))
            broker.kill()
            self._over.set()
            for thread in threads:
                thread.join()
        if self._faults:
            raise self._faults[0]
        with self._start() as again:
            for work in self.works:
                with again.connect() as connection:
                    work.begin(connection)
            for work in self.works:
                with again.connect() as connection:
                    work.settle(connection)
            assert again.stop() == 0

    def _start(self) -> BrokerProcess:
        return BrokerProcess(self.store, *self._arguments, environment=QUICK_REVIVE)

    def _load(self, broker: BrokerProcess, work: Work) -> None:
        try:
            with broker.connect() as connection:
                work.load(connection, self._over)
        except OSError:
            pass  # the kill
        except BaseException as fault:
            self._faults.append(fault)
            self._over.set()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--flush", choices=("ASYNC_FLUSH", "SYNC_FLUSH"), default="ASYNC_FLUSH")
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rounds = LifeRounds(Path(folder) / "store", chosen.flush, seed=chosen.seed)
        for number in range(chosen.rounds):
            rounds.run()
            print(f"round {number + 1}: {', '.join(map(str, rounds.works))}", flush=True)


if __name__ == "__main__":
    main()
