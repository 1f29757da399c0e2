"""`python -m tests.grpc.kills --minutes 10`: kills brokers under clients of gRPC; with `--pair`, the master of a pair,
whose slave is promoted. Exit code 1: a promise was broken (tests/grpc/killed_clients.py)."""

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Protocol

from tests.grpc.killed_clients import HALVES, TOPIC, History, Load, prepare
from tests.replication.pairs import own_ports, words
from tests.replication.promoted_pair import PromotedPair, is_master, promoted
from tests.support.broker_process import BrokerProcess
from tests.support.client_socket import ClientSocket
from tests.support.eventually import eventually
from tests.support.requests import read_queue

QUEUES = 4
SETTINGS = {
    "brokerName": "pair",
    "reviveInterval": "100",
    "timerPrecisionMs": "100",
    "transactionCheckInterval": "300",
    "transactionTimeOut": "300",
    "transactionCheckMax": "1000",
}
SYNCED = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2", "slaveTimeout": "3000"}
DRAIN_S = 60


class Killed(Protocol):
    """A broker, or a pair of them, of which one serves."""

    def address(self) -> tuple[str, int]: ...
    def connect(self) -> ClientSocket: ...
    def fail(self) -> None: ...
    def close(self) -> None: ...


class OneBroker:
    """It is killed, and started again at its port."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self._store = folder / "store"
        self._arguments = (*own_ports(), *words(SETTINGS | settings))
        self.broker = self._start()

    def _start(self) -> BrokerProcess:
        return BrokerProcess(self._store, *self._arguments)

    def address(self) -> tuple[str, int]:
        return self.broker.address

    def connect(self) -> ClientSocket:
        return self.broker.connect()

    def fail(self) -> None:
        self.broker.kill()
        self.broker = self._start()

    def close(self) -> None:
        self.broker.kill()


class Pair:
    """The master is killed, and its slave promoted, once."""

    def __init__(self, folder: Path) -> None:
        self._pair = PromotedPair(folder, **SETTINGS, **SYNCED)
        self.broker = self._pair.master

    def address(self) -> tuple[str, int]:
        return self.broker.address

    def connect(self) -> ClientSocket:
        return self.broker.connect()

    def ready(self) -> None:
        """The slave is in step: from now on, what is answered is at both."""
        self._pair.caught_up()

    def fail(self) -> None:
        slave = self._pair.slave
        self._pair.master.kill()
        promoted(slave, "--role", "ASYNC_MASTER").succeeded()
        with slave.connect() as client:
            eventually(lambda: is_master(client), what="the promotion")
        self.broker = slave

    def close(self) -> None:
        self._pair.close()


def run_round(killed: Killed, seed: int, fails: int, *, drained: bool) -> History:
    """Let clients work, and the broker fail that often. `drained`: wait until all has been received and acknowledged,
    which takes as long as the longest invisible time; else look at what the broker stored. AssertionError: too late."""
    draw = random.Random(seed)
    with Load(killed.address, seed) as load:
        history = load.history
        eventually(lambda: len(history.acknowledged) > 3, what="the first acknowledgements")
        for _ in range(fails):
            time.sleep(draw.uniform(0.2, 1.2))
            killed.fail()
            sent = len(history.sent)
            eventually(lambda sent=sent: len(history.sent) > sent + 3, what="sends after it")  # type: ignore[misc]
        load.stop_sending()
        load.hurry()
        eventually(lambda: not history.expected_again, 20, lambda: f"again {history.expected_again}")
        if drained:
            eventually(lambda: not history.unsettled(), DRAIN_S, history.unsettled)
    with killed.connect() as connection:
        stored = {
            record.body
            for topic in (TOPIC, HALVES)
            for queue in range(QUEUES)
            for record in read_queue(connection, topic, queue)
        }
    for body in history.sent - stored:
        history.fault(f"{body!r} was sent, and is not stored")
    return history


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.grpc.kills", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pair", action="store_true", help="promote the slave of a pair")
    parser.add_argument("--flush", choices=("ASYNC_FLUSH", "SYNC_FLUSH"), default="ASYNC_FLUSH")
    chosen = parser.parse_args()
    until, rounds, counts, faults = time.monotonic() + chosen.minutes * 60, 0, Counter[str](), list[str]()
    while time.monotonic() < until and not faults:
        seed = chosen.seed + rounds
        folder = Path(tempfile.mkdtemp(prefix="grpc-kills-"))
        killed = Pair(folder) if chosen.pair else OneBroker(folder, flushDiskType=chosen.flush)
        with killed.connect() as connection:
            prepare(connection)
        if isinstance(killed, Pair):
            killed.ready()
        try:
            history = run_round(killed, seed, 1 if chosen.pair else 5, drained=True)
            faults += [f"seed {seed}, {folder}: {fault}" for fault in history.faults]
        except AssertionError as error:
            faults.append(f"seed {seed}, {folder}: {error}")
        else:
            counts["sent"] += len(history.sent)
            counts["acknowledged"] += len(history.acknowledged)
            counts["deliveries"] += sum(history.deliveries.values())
        finally:
            killed.close()
        rounds += 1
        if not faults:
            shutil.rmtree(folder)
        print(f"round {rounds}: {dict(counts)}, {len(faults)} faults", file=sys.stderr, flush=True)
    print(json.dumps({"rounds": rounds, "pair": chosen.pair, **counts, "faults": faults}, indent=1))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
