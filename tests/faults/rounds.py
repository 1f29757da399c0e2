"""FaultRounds: random faults on a broker under load, again and again on one store; what was acknowledged stays.

A round: start, load by threads, some faults that pass, maybe one that ends the taking, a kill or a stop, a start
without faults, every message looked at. The producers' threads own their tallies until they are joined.
"""

import contextlib
import random
import threading
import time
from collections import Counter
from pathlib import Path

from tests.faults.kinds import ENDING, FINAL, PASSING, Fault, heal
from tests.faults.shim import Shim
from tests.faults.tally import Tally, until
from tests.process.connection import Connection
from tests.process.running import Broker

PRODUCERS = 3
SMALL = tuple(
    word
    for option in (
        "mappedFileSizeCommitLog=262144", "mappedFileSizeConsumeQueue=20000", "maxHashSlotNum=100",
        "maxIndexNum=1000", "flushConsumerOffsetInterval=200", "flushIntervalConsumeQueue=50",
        "flushIntervalCommitLog=20", "deleteWhen=04", "fileReservedTime=100000",
    )
    for word in ("--set", option)
)  # fmt: skip


class FaultRounds:
    """`counts`: faults by kind, rounds, kills, stops."""

    def __init__(self, folder: Path, seed: int, flush: str) -> None:
        self._draw = random.Random(seed)
        self._folder = folder
        self._arguments = (*SMALL, "--set", f"flushDiskType={flush}")
        self._tallies = [Tally() for _ in range(PRODUCERS)]
        self._enough = threading.Event()
        self._troubles: list[BaseException] = []
        self.counts: Counter[str] = Counter()

    @property
    def acknowledged(self) -> int:
        return sum(len(tally.stored) for tally in self._tallies)

    def run(self) -> None:
        """AssertionError: something acknowledged is gone, or the broker died, or did not come back by itself."""
        shim = Shim(self._folder)
        with self._start(shim.environment) as broker:
            threads = [
                threading.Thread(target=self._load, args=(broker, tally, number))
                for number, tally in enumerate(self._tallies)
            ]
            self._enough.clear()
            for thread in threads:
                thread.start()
            try:
                self._hurt(broker, shim)
            finally:
                self._enough.set()
                for thread in threads:
                    thread.join()
            assert not self._troubles, self._troubles
            self._end(broker, shim)
        with self._start({}) as broker, broker.connect() as connection:
            for tally in self._tallies:
                tally.check(connection)
        self.counts["round"] += 1

    def _start(self, environment: dict[str, str]) -> Broker:
        return Broker(self._folder / "store", *self._arguments, environment=environment)

    def _hurt(self, broker: Broker, shim: Shim) -> None:
        for _ in range(self._draw.randint(1, 4)):
            fault = self._draw.choice(PASSING)
            self._put(fault, broker, shim)
            heal(broker, shim)
            self._comes_back(fault, broker)
        if self._draw.random() < 0.3:
            self._put(self._draw.choice(FINAL), broker, shim)
        if self._draw.random() < 0.5:  # the end comes in the middle of a fault
            self._put(self._draw.choice(ENDING), broker, shim)

    def _put(self, fault: Fault, broker: Broker, shim: Shim) -> None:
        time.sleep(self._draw.uniform(0.01, 0.1))
        fault(self._draw, broker, shim)
        time.sleep(self._draw.uniform(0.05, 0.4))
        assert broker.process.poll() is None, (
            f"the broker died of {fault.__name__}: {broker.log.read_text()[-3000:]}"
        )
        self.counts[fault.__name__] += 1

    def _comes_back(self, fault: Fault, broker: Broker) -> None:
        """Without a word from anybody: sends to a topic of its own are taken."""
        tally = Tally()
        with broker.connect() as connection:
            until(
                lambda: tally.send(connection, f"Back{self.counts['round']}") == 0,
                told=lambda: f"{fault.__name__}: {broker.log.read_text()[-3000:]}",
            )

    def _end(self, broker: Broker, shim: Shim) -> None:
        if self._draw.random() < 0.6:
            broker.kill()
            self.counts["kill"] += 1
        else:
            assert broker.stop() in (0, 3), broker.log.read_text()[-3000:]
            self.counts["stop"] += 1

    def _load(self, broker: Broker, tally: Tally, number: int) -> None:
        """Sends, commits and changes until it is enough; a connection that is cut is made anew."""
        draw = random.Random(self._draw.random())
        try:
            while not self._enough.is_set():
                with contextlib.suppress(OSError), broker.connect() as connection:
                    self._ask(connection, tally, number, draw)
        except BaseException as trouble:
            self._troubles.append(trouble)

    def _ask(self, connection: Connection, tally: Tally, number: int, draw: random.Random) -> None:
        topic = f"T{number}"
        while not self._enough.is_set():
            tally.send(connection, topic, draw.choice((10, 300, 3000)), draw.randint(0, 1))
            if draw.random() < 0.1:
                tally.commit(connection, topic, 0, len(tally.stored))
            if draw.random() < 0.02:
                tally.make_topic(connection, f"{topic}-{len(tally.topics)}")
