"""A process that makes transactions for `kills`: `writer FACE DATABASE NAME_SERVER GROUP TOPIC`.

It reads `NUMBER STEP` from stdin, makes the transaction of that order, prints `at STEP` when it is there and waits for
a line, then prints `done` or `failed …`. `NUMBER many` makes transactions from that number on without a pause.
"""

import asyncio
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import sqlalchemy
from sqlalchemy import event, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import Session

from firearrow.client import Message, ProducerOptions
from firearrow.client import Producer as AsyncProducer
from firearrow.client.blocking import Producer

STEPS = ("begun", "row", "sent", "worked", "committing", "committed", "decided")
ROW = "firearrow_outbox"
CHECK = "firearrow.client.integrations.outbox.django.check"
ORDER = "insert into orders values ({})"
OPTIONS = ProducerOptions(send_timeout_s=10, retries=5)


class Steps:
    """Pauses at the chosen one."""

    def __init__(self) -> None:
        self.number, self.chosen = 0, ""

    def at(self, step: str) -> None:
        if step == self.chosen:
            self.chosen = ""
            print(f"at {step}", flush=True)
            sys.stdin.readline()

    def listen(self, engine: sqlalchemy.Engine) -> None:
        @event.listens_for(engine, "after_cursor_execute")
        def executed(connection: Any, cursor: Any, statement: str, *_: object) -> None:
            if statement.startswith(f"INSERT INTO {ROW}"):
                self.at("row")

        @event.listens_for(engine, "commit")
        def committing(connection: object) -> None:
            self.at("committing")


Make = Callable[[int], None]


def of_sqlalchemy(steps: Steps, url: str, name_server: str, group: str, topic: str) -> Make:
    from firearrow.client.integrations.outbox.sqlalchemy import Outbox  # noqa: PLC0415

    engine = sqlalchemy.create_engine(url)
    outbox = Outbox(engine)
    producer = Producer(group, name_server=name_server, options=OPTIONS, checker=outbox.check).start()
    steps.listen(engine)

    def make(number: int) -> None:
        with Session(engine) as session:
            event.listen(session, "after_commit", lambda _: steps.at("committed"))
            with outbox.begin(producer, session) as transaction:
                steps.at("begun")
                transaction.send(Message(topic, str(number).encode()))
                steps.at("sent")
                session.execute(text(ORDER.format(number)))
                steps.at("worked")

    return make


def of_async(steps: Steps, url: str, name_server: str, group: str, topic: str) -> Make:
    from firearrow.client.integrations.outbox.sqlalchemy import AsyncOutbox  # noqa: PLC0415

    runner = asyncio.Runner()
    engine = create_async_engine(url)
    outbox = AsyncOutbox(engine)

    async def start() -> AsyncProducer:
        producer = AsyncProducer(group, name_server=name_server, options=OPTIONS, checker=outbox.check)
        return await producer.start()

    producer = runner.run(start())
    steps.listen(engine.sync_engine)

    async def transact(number: int) -> None:
        async with outbox.begin(producer) as transaction:
            event.listen(transaction.session.sync_session, "after_commit", lambda _: steps.at("committed"))
            steps.at("begun")
            await transaction.send(Message(topic, str(number).encode()))
            steps.at("sent")
            await transaction.session.execute(text(ORDER.format(number)))
            steps.at("worked")

    return lambda number: runner.run(transact(number))


def of_django(steps: Steps, url: str, name_server: str, group: str, topic: str) -> Make:
    import django  # noqa: PLC0415
    from django.conf import settings  # noqa: PLC0415

    parts = sqlalchemy.make_url(url)
    database = {"ENGINE": "django.db.backends.postgresql", "NAME": parts.database, "USER": parts.username}
    database |= {"HOST": parts.host, "PORT": str(parts.port)}
    settings.configure(
        DATABASES={"default": database},
        INSTALLED_APPS=["firearrow.client.integrations.django"],
        FIREARROW={"NAME_SERVER": name_server, "PRODUCER_GROUP": group, "CHECKER": CHECK},
    )
    django.setup()
    from django.db import close_old_connections, connection, transaction  # noqa: PLC0415

    from firearrow.client.integrations.outbox.django import send  # noqa: PLC0415

    def execute(run: Callable[..., object], sql: str, *arguments: object) -> object:
        result = run(sql, *arguments)
        if sql.startswith(f'INSERT INTO "{ROW}"'):
            steps.at("row")
        return result

    def make(number: int) -> None:
        close_old_connections()
        with connection.execute_wrapper(execute), transaction.atomic():
            transaction.on_commit(lambda: steps.at("committed"))
            steps.at("begun")
            send(Message(topic, str(number).encode()))
            steps.at("sent")
            with connection.cursor() as cursor:
                cursor.execute(ORDER.format(number))
            steps.at("worked")
            steps.at("committing")

    return make


FACES = {"sync": of_sqlalchemy, "async": of_async, "django": of_django}


def main() -> None:
    face, *where = sys.argv[1:]
    steps = Steps()
    make = FACES[face](steps, *where)
    print("ready", flush=True)
    while line := sys.stdin.readline().split():
        number, steps.chosen = int(line[0]), line[1]
        while steps.chosen == "many":
            with suppress(Exception):
                make(number)
            number += 1
        try:
            make(number)
            steps.at("decided")
            print("done", flush=True)
        except Exception as error:
            steps.at("committed")  # the server died before its event
            steps.at("decided")
            print(f"failed {type(error).__name__}: {' '.join(str(error).split())[:200]}", flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
