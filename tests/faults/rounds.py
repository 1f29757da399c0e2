"""FaultRounds: random faults on a broker under load, repeatedly on one store; acknowledged messages survive.

A round: start, load by threads, some transient faults, maybe one that stops sends, a kill or a stop, a start without
faults, a check of every message. The producers' threads own their tallies until they are joined.
"""

import contextlib
import random
import threading
import time
from collections import Counter
from pathlib import Path

from tests.faults.acknowledged_messages import AcknowledgedMessages
from tests.faults.kinds import ENDING, FINAL, PASSING, Fault, heal
from tests.faults.shim import Shim
from tests.support.broker_process import BrokerProcess
from tests.support.client_socket import ClientSocket
from tests.support.eventually import eventually

PRODUCERS = 3
SMALL = tuple(
    word
    for option in (
        "mappedFileSizeCommitLog=262144",
        "mappedFileSizeConsumeQueue=20000",
        "maxHashSlotNum=100",
        "maxIndexNum=1000",
        "flushConsumerOffsetInterval=200",
        "flushIntervalConsumeQueue=50",
        "flushIntervalCommitLog=20",
        "deleteWhen=04",
        "fileReservedTime=100000",
    )
    for word in ("--set", option)
)


class FaultRounds:
    """`counts`: faults by kind, rounds, kills, stops."""

    def __init__(self, folder: Path, seed: int, flush: str) -> None:
        self._draw = random.Random(seed)
        self._folder = folder
        self._arguments = (*SMALL, "--set", f"flushDiskType={flush}")
        self._tallies = [AcknowledgedMessages() for _ in range(PRODUCERS)]
        self._enough = threading.Event()
        self._troubles: list[BaseException] = []
        self.counts: Counter[str] = Counter()

    @property
    def acknowledged(self) -> int:
        return sum(len(acknowledged.stored) for acknowledged in self._tallies)

    def run(self) -> None:
        """AssertionError: an acknowledged message is lost, or the broker died, or did not recover by itself."""
        shim = Shim(self._folder)
        with self._start(shim.environment) as broker:
            threads = [
                threading.Thread(target=self._load, args=(broker, acknowledged, number))
                for number, acknowledged in enumerate(self._tallies)
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
            for acknowledged in self._tallies:
                acknowledged.check(connection)
        self.counts["round"] += 1

    def _start(self, environment: dict[str, str]) -> BrokerProcess:
        return BrokerProcess(self._folder / "store", *self._arguments, environment=environment)

    def _hurt(self, broker: BrokerProcess, shim: Shim) -> None:
        for _ in range(self._draw.randint(1, 4)):
            fault = self._draw.choice(PASSING)
            self._put(fault, broker, shim)
            heal(broker, shim)
            self._comes_back(fault, broker)
        if self._draw.random() < 0.3:
            self._put(self._draw.choice(FINAL), broker, shim)
        if self._draw.random() < 0.5:  # the end comes in the middle of a fault
            self._put(self._draw.choice(ENDING), broker, shim)

    def _put(self, fault: Fault, broker: BrokerProcess, shim: Shim) -> None:
        time.sleep(self._draw.uniform(0.01, 0.1))
        fault(self._draw, broker, shim)
        time.sleep(self._draw.uniform(0.05, 0.4))
        assert broker.process.poll() is None, (
            f"the broker died of {fault.__name__}: {broker.log.read_text()[-3000:]}"
        )
        self.counts[fault.__name__] += 1

    def _comes_back(self, fault: Fault, broker: BrokerProcess) -> None:
        """Without any action from outside: sends to a separate topic are accepted."""
        acknowledged = AcknowledgedMessages()
        with broker.connect() as connection:
            eventually(
                lambda: acknowledged.send(connection, f"Back{self.counts['round']}") == 0,
                what=lambda: f"{fault.__name__}: {broker.log.read_text()[-3000:]}",
            )

    def _end(self, broker: BrokerProcess, shim: Shim) -> None:
        if self._draw.random() < 0.6:
            broker.kill()
            self.counts["kill"] += 1
        else:
            assert broker.stop() in (0, 3), broker.log.read_text()[-3000:]
            self.counts["stop"] += 1

    def _load(self, broker: BrokerProcess, acknowledged: AcknowledgedMessages, number: int) -> None:
        """Sends, commits and changes until there are enough; a closed connection is reopened."""
        draw = random.Random(self._draw.random())
        try:
            while not self._enough.is_set():
                with contextlib.suppress(OSError), broker.connect() as connection:
                    self._ask(connection, acknowledged, number, draw)
        except BaseException as trouble:
            self._troubles.append(trouble)

    def _ask(
        self, connection: ClientSocket, acknowledged: AcknowledgedMessages, number: int, draw: random.Random
    ) -> None:
        topic = f"T{number}"
        while not self._enough.is_set():
            acknowledged.send(connection, topic, draw.choice((10, 300, 3000)), draw.randint(0, 1))
            if draw.random() < 0.1:
                acknowledged.commit(connection, topic, 0, len(acknowledged.stored))
            if draw.random() < 0.02:
                acknowledged.make_topic(connection, f"{topic}-{len(acknowledged.topics)}")
