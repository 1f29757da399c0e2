"""`kill -9` under load, repeatedly: acknowledged messages are there, once, at their offsets, in order.

`python -m tests.integration.kill_rounds --rounds 100 [--flush SYNC_FLUSH]` does many; test_kill does a few.
"""

import argparse
import random
import tempfile
import threading
from collections import Counter
from pathlib import Path

from firearrow._native.wire.codes import RequestCode
from tests.support.broker_process import BrokerProcess
from tests.support.client_socket import ClientSocket
from tests.support.requests import SUBSCRIPTION, SUSPEND, pull_ext, read_queue, records, send_ext, topic_ext

TOPIC, QUEUES, PRODUCERS, PIPELINE = "Killed", 4, 3, 48
Position = tuple[int, int]
SMALL_FILES = ("--set", "mappedFileSizeCommitLog=4194304", "--set", "mappedFileSizeConsumeQueue=20000")


class KillRounds:
    """One store through many kills. `acknowledged` and `seen`: (queue, offset) → body."""

    def __init__(self, store: Path, flush: str, seed: int = 1) -> None:
        self.store = store
        self._flush = flush
        self._draw = random.Random(seed)
        self.acknowledged: dict[Position, bytes] = {}
        self.seen: dict[Position, bytes] = {}
        self._round = 0
        self._enough = threading.Event()
        self._faults: list[BaseException] = []

    def run(self, tear: bool = False) -> None:
        """One round: load, kill, start again, compare."""
        self._round += 1
        with self._start() as broker:
            with broker.connect() as connection:
                assert connection.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(TOPIC, QUEUES)).code == 0
            self._load_until_killed(broker)
        if tear:
            self._tear()
        with self._start() as again, again.connect() as connection:
            self._check(connection)

    def _start(self) -> BrokerProcess:
        return BrokerProcess(self.store, "--set", f"flushDiskType={self._flush}", *SMALL_FILES)

    def _load_until_killed(self, broker: BrokerProcess) -> None:
        self._enough.clear()
        wanted = len(self.acknowledged) + self._draw.randint(200, 3000)
        threads = [
            threading.Thread(target=self._until_lost, args=(broker, work, n))
            for n, work in [*((n, self._produce) for n in range(PRODUCERS)), (0, self._consume)]
        ]
        self._wanted = wanted
        for thread in threads:
            thread.start()
        assert self._enough.wait(60), self._faults
        broker.kill()
        for thread in threads:
            thread.join()
        assert not self._faults, self._faults

    def _until_lost(self, broker: BrokerProcess, work: object, n: int) -> None:
        try:
            with broker.connect() as connection:
                work(connection, n)  # type: ignore[operator]
        except OSError:
            pass  # the kill
        except BaseException as fault:
            self._faults.append(fault)
            self._enough.set()

    def _produce(self, connection: ClientSocket, n: int) -> None:
        waiting: dict[int, bytes] = {}
        number = 0
        while True:
            while len(waiting) < PIPELINE:
                body = b"%d.%d.%08d." % (self._round, n, number) + bytes(number % 700)
                opaque = connection.send_request(
                    RequestCode.SEND_MESSAGE_V2, send_ext(TOPIC, number % QUEUES), body
                )
                waiting[opaque] = body
                number += 1
            answer = connection.receive()
            body = waiting.pop(answer.opaque)
            assert answer.code == 0, answer.remark
            position = int(answer.ext["queueId"]), int(answer.ext["queueOffset"])
            assert position not in self.acknowledged, f"{position} was assigned twice"
            self.acknowledged[position] = body
            if len(self.acknowledged) >= self._wanted:
                self._enough.set()

    def _consume(self, connection: ClientSocket, _: int) -> None:
        """Long polls queue 0, records what it got, commits."""
        offset = max((position[1] + 1 for position in self.seen if position[0] == 0), default=0)
        flags = str(SUBSCRIPTION | SUSPEND)
        while True:
            ext = pull_ext(TOPIC, offset, sysFlag=flags, suspendTimeoutMillis="10000")
            answer = connection.ask(RequestCode.PULL_MESSAGE, ext)
            if answer.code != 0:
                offset = int(answer.ext["nextBeginOffset"])
                continue
            for record in records(answer.body):
                self.seen[record.queue_id, record.queue_offset] = record.body
            offset = int(answer.ext["nextBeginOffset"])
            commit = {"consumerGroup": "CG", "topic": TOPIC, "queueId": "0", "commitOffset": str(offset)}
            assert connection.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commit).code == 0

    def _tear(self) -> None:
        """Truncate or overwrite what follows the last acknowledged record, as a torn write does."""
        segment = max((self.store / "commitlog").iterdir())
        data = segment.read_bytes()
        end = len(data.rstrip(b"\x00"))
        with segment.open("r+b") as file:
            file.seek(min(end + 4, len(data) - 64))
            file.write(b"\x00\x00\x01\x00" + b"\xda\xa3\x20\xa7" + self._draw.randbytes(40))

    def _check(self, connection: ClientSocket) -> None:
        stored: dict[Position, bytes] = {}
        for queue_id in range(QUEUES):
            found = read_queue(connection, TOPIC, queue_id)
            assert [record.queue_offset for record in found] == list(range(len(found)))
            ends = {"topic": TOPIC, "queueId": str(queue_id)}
            assert int(connection.ask(RequestCode.GET_MAX_OFFSET, ends).ext["offset"]) == len(found)
            stored |= {(queue_id, record.queue_offset): record.body for record in found}
            self._check_order([record.body for record in found])
        twice = [body for body, count in Counter(stored.values()).items() if count > 1]
        assert not twice, f"{len(twice)} messages are there twice"
        lost = {position for position, body in self.acknowledged.items() if stored.get(position) != body}
        assert not lost, f"{len(lost)} acknowledged messages are lost or changed: {sorted(lost)[:3]}"
        if self._flush == "SYNC_FLUSH":
            vanished = {position for position, body in self.seen.items() if stored.get(position) != body}
            assert not vanished, (
                f"{len(vanished)} messages that were seen have vanished: {sorted(vanished)[:3]}"
            )
        committed = connection.ask(
            RequestCode.QUERY_CONSUMER_OFFSET, {"consumerGroup": "CG", "topic": TOPIC, "queueId": "0"}
        )
        if committed.code == 0:
            assert int(committed.ext["offset"]) <= sum(position[0] == 0 for position in stored)

    def _check_order(self, bodies: list[bytes]) -> None:
        """The messages of each producer of each round are in the order in which it sent them."""
        last: dict[bytes, bytes] = {}
        for body in bodies:
            producer, number = body[: body.index(b".", body.index(b".") + 1)], body.split(b".")[2]
            assert last.get(producer, b"") < number
            last[producer] = number


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--flush", choices=("ASYNC_FLUSH", "SYNC_FLUSH"), default="ASYNC_FLUSH")
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rounds = KillRounds(Path(folder) / "store", chosen.flush, chosen.seed)
        for number in range(chosen.rounds):
            rounds.run(tear=number % 3 == 2)
            print(f"round {number + 1}: {len(rounds.acknowledged)} acknowledged messages found", flush=True)


if __name__ == "__main__":
    main()
