"""The outbox under SIGKILL: `python -m tests.integrations.outbox.kills [--rounds N] [--apache]`.

A writer makes transactions, each an order in a PostgreSQL and a message about it, and pauses at every step of each.
There the writer, the broker or PostgreSQL is killed, and started again. In the end the messages that consumers got must
be those of the orders that are in the table. The long form does so for each step, each victim and each face, some
rounds with several writers that are killed at random times.
"""

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import product
from pathlib import Path
from typing import Protocol, Self

import psycopg
from sqlalchemy import create_engine

from firearrow.client import ConsumeFromWhere, LocalBroker, Message, OnlyFireArrow, PushConsumerOptions
from firearrow.client.blocking import Admin, Extensions, Producer, PushConsumer
from firearrow.client.integrations.outbox.sqlalchemy import Outbox
from tests.integrations.outbox.postgres import Postgres
from tests.integrations.outbox.writer import STEPS
from tests.interop.peers import LIFE, MARKS_AT_ONCE, Apache
from tests.support.eventually import eventually

FACES = ("sync", "async", "django")
VICTIMS = ("writer", "broker", "postgres")
ABANDONED = ("sent", "worked", "committing")
"""Steps at which there is a half message and no commit."""
WITHIN_S = 60
SETTINGS = LIFE | {"autoCreateTopicEnable": "true", "transactionCheckMax": "1000"}


class Broker(Protocol):
    name_server: str

    def kill(self) -> None: ...
    def start(self) -> None: ...


class Writer:
    """A process that makes transactions, and pauses at a step."""

    def __init__(self, scene: "Scene", face: str) -> None:
        command = [sys.executable, "-m", "tests.integrations.outbox.writer", face, scene.postgres.url]
        command += [scene.broker.name_server, scene.group, scene.topic]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.line() == "ready"

    def tell(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{text}\n")
        self.process.stdin.flush()

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


class Scene:
    """A PostgreSQL, a broker, another member of the group that answers checks, and a consumer."""

    def __init__(self, postgres: Postgres, broker: Broker, name: str) -> None:
        self.postgres = postgres
        self.broker = broker
        self.group, self.topic = f"shop-{name}", f"orders-{name}"
        self.delivered: list[int] = []
        self.failures: list[str] = []
        self._number = self._abandoned = 0
        self._stack = ExitStack()
        self._writers: dict[str, Writer] = {}

    def __enter__(self) -> Self:
        with self._connection() as connection:
            connection.execute("create table if not exists orders (number integer primary key)")
            connection.execute("delete from orders")
        engine = create_engine(self.postgres.url, pool_pre_ping=True)
        self._stack.callback(engine.dispose)
        outbox = Outbox(engine)
        outbox.metadata.create_all(engine)
        with Admin(name_server=self.broker.name_server) as admin:
            admin.create_topic(self.topic, queues=1)
        options = PushConsumerOptions(from_where=ConsumeFromWhere.FIRST_OFFSET)
        consumer = PushConsumer(f"reader-{self.group}", name_server=self.broker.name_server, options=options)
        consumer.subscribe(
            self.topic, lambda messages: self.delivered.extend(int(each.body) for each in messages)
        )
        self._stack.enter_context(consumer)
        member = Producer(self.group, name_server=self.broker.name_server, checker=outbox.check)
        self._member = self._stack.enter_context(member)
        self._first = Message(self.topic, b"0")
        eventually(lambda: self._member.send(self._first), WITHIN_S)
        return self

    def __exit__(self, *_: object) -> None:
        for writer in self._writers.values():
            writer.kill()
        self._stack.close()

    def case(self, face: str, step: str, victim: str) -> None:
        """One transaction, in which the victim is killed at the step."""
        writer = self._writers.get(face) or Writer(self, face)
        self._writers[face] = writer
        self._number += 1
        writer.tell(f"{self._number} {step}")
        line = writer.line()
        assert line == f"at {step}", line
        if victim == "writer":
            self._writers.pop(face).kill()
            self._abandoned += step in ABANDONED
            return
        server = self.broker if victim == "broker" else self.postgres
        server.kill()
        server.start()
        writer.tell("go")
        line = writer.line()
        assert line.startswith(("done", "failed")), line
        if line.startswith("failed"):
            self.failures.append(f"{face}, {victim} killed at {step}: {line}")

    def random_kills(
        self, face: str, seconds: float, numbers: random.Random, victims: tuple[str, ...]
    ) -> None:
        """Writers that do not pause, killed at random times."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            writers = [Writer(self, face) for _ in range(3)]
            for writer in writers:
                self._number += 1000
                writer.tell(f"{self._number} many")
            time.sleep(numbers.uniform(0.1, 3))
            victim = numbers.choice(victims)
            if victim != "writer":
                server = self.broker if victim == "broker" else self.postgres
                server.kill()
                server.start()
            for writer in writers:
                writer.kill()

    def settle(self) -> list[int]:
        """The orders, once all half messages are decided, and each message of an order was delivered."""
        eventually(lambda: not open_halves(self.broker.name_server, self.group), WITHIN_S, "half messages")
        eventually(
            lambda: self._tombstones() >= self._abandoned, WITHIN_S, "checks of abandoned transactions"
        )
        eventually(
            lambda: set(self.ordered()) <= set(self.delivered),
            WITHIN_S,
            lambda: f"lost: {sorted(set(self.ordered()) - set(self.delivered))}",
        )
        self._number += 1
        marker = self._number * 1_000_000  # after all that was committed, in the one queue
        eventually(lambda: self._sent(marker), WITHIN_S)
        eventually(lambda: marker in self.delivered, WITHIN_S)
        assert {number for number in self.delivered if 0 < number < 1_000_000} == set(self.ordered())
        return self.ordered()

    def _tombstones(self) -> int:
        with self._connection() as connection:
            query = "select count(*) from firearrow_outbox where producer_group = %s and state = 'R'"
            [(count,)] = connection.execute(query, [self.group])
            return int(count)

    def _sent(self, number: int) -> bool:
        self._member.send(Message(self.topic, str(number).encode()))
        return True

    def ordered(self) -> list[int]:
        with self._connection() as connection:
            return [number for (number,) in connection.execute("select number from orders order by number")]

    @contextmanager
    def _connection(self) -> Iterator[psycopg.Connection]:
        with psycopg.connect(self.postgres.conninfo) as connection:
            yield connection


def open_halves(name_server: str, group: str) -> list[str]:
    """Of our broker; Apache's does not list them."""
    with Admin(name_server=name_server) as admin:
        try:
            return [half.msg_id for half in Extensions(admin).half_messages(group)]
        except OnlyFireArrow:
            return []


@contextmanager
def broker_for(kind: str, folder: Path) -> Iterator[Broker]:
    if kind == "apache":
        with Apache(folder / "store", SETTINGS | MARKS_AT_ONCE) as apache:
            yield apache  # type: ignore[misc]  # it is not started again
    else:
        with LocalBroker(folder / "store", settings=SETTINGS) as ours:
            yield ours


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="rounds of random kills for each face")
    parser.add_argument("--seconds", type=float, default=20, help="length of such a round")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--apache", action="store_true", help="Apache's broker; only writers and PostgreSQL are killed"
    )
    options = parser.parse_args()
    victims = ("writer", "postgres") if options.apache else VICTIMS
    numbers = random.Random(options.seed)
    with tempfile.TemporaryDirectory(prefix="firearrow-kills-") as name:
        folder = Path(name)
        with (
            Postgres() as postgres,
            broker_for("apache" if options.apache else "firearrow", folder) as broker,
        ):
            with Scene(postgres, broker, "steps") as scene:
                cases = list(product(FACES, STEPS, victims))
                for face, step, victim in cases:
                    scene.case(face, step, victim)
                orders = scene.settle()
                print(
                    f"{len(cases)} kills at a step: {len(orders)} orders, each delivered, and no other",
                    flush=True,
                )
            for number, face in product(range(options.rounds), FACES):
                with Scene(postgres, broker, f"{face}-{number}") as scene:
                    scene.random_kills(face, options.seconds, numbers, victims)
                    orders = scene.settle()
                    more = len(scene.delivered) - len(set(scene.delivered))
                    print(f"{face}, round {number}: {len(orders)} orders, {more} delivered twice", flush=True)


if __name__ == "__main__":
    main()
