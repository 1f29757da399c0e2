"""Messages follow the SQL transaction, and checks are answered from the table: SQLAlchemy, sync and async."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, event, text
from sqlalchemy.exc import IntegrityError, OperationalError, SQLAlchemyError
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import Session

from firearrow.client import (
    ClientError,
    ConfigError,
    ConsumeFromWhere,
    Message,
    MessageRefused,
    PushConsumer,
    PushConsumerOptions,
    ReceivedMessage,
    TransactionState,
)
from firearrow.client import Producer as AsyncProducer
from firearrow.client.blocking import Admin, Producer
from firearrow.client.blocking import PushConsumer as BlockingConsumer
from firearrow.client.integrations.outbox.decision import CLEAN_AFTER_S, with_new_id
from firearrow.client.integrations.outbox.sqlalchemy import AsyncOutbox, Outbox
from firearrow.client.send.transactions import first_born_ms
from tests.integrations.conftest import unique
from tests.interop.peers import Peer
from tests.support.eventually import eventually, eventually_async

OPTIONS = PushConsumerOptions(from_where=ConsumeFromWhere.FIRST_OFFSET)


class Checked:
    """An outbox whose answers to checks are noted."""

    def __init__(self, check: Callable[[ReceivedMessage], TransactionState]) -> None:
        self.answers: dict[bytes, list[TransactionState]] = {}
        self._check = check

    def __call__(self, message: ReceivedMessage) -> TransactionState:
        answer = self._check(message)
        self.answers.setdefault(message.body, []).append(answer)
        return answer


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    made = create_engine(url)
    with made.begin() as connection:
        connection.execute(text("create table if not exists orders (number integer primary key)"))
        connection.execute(text("delete from orders"))
    yield made
    eventually(
        lambda: made.pool.checkedout() == 0
    )  # a check may still run; what it returned later would stay open
    made.dispose()


@pytest.fixture
def outbox(engine: Engine) -> Outbox:
    made = Outbox(engine)
    made.metadata.create_all(engine)
    return made


@pytest.fixture
def delivered(name_server: str, topic: str) -> Iterator[list[bytes]]:
    """The bodies that a consumer of the topic gets."""
    found: list[bytes] = []
    consumer = BlockingConsumer(unique("reader"), name_server=name_server, options=OPTIONS)
    consumer.subscribe(topic, lambda messages: found.extend(message.body for message in messages))
    with consumer:
        yield found


def states(engine: Engine, group: str) -> list[str]:
    with engine.connect() as connection:
        query = text(
            "select state from firearrow_outbox where producer_group = :group order by created_s, state"
        )
        return list(connection.scalars(query, {"group": group}))


def insert(session: Session, number: int) -> None:
    session.execute(text("insert into orders values (:number)"), {"number": number})


def test_messages_follow_the_transaction(
    outbox: Outbox, engine: Engine, site: Peer, name_server: str, topic: str, delivered: list[bytes]
) -> None:
    """Two messages of one transaction; a block that fails; a statement that fails; a swallowed failure of a send."""
    with Producer(unique("shop"), name_server=name_server, checker=outbox.check) as producer:
        with outbox.begin(producer) as transaction:
            insert(transaction.session, 1)
            message = Message(topic, b"1")
            transaction.send(message)
            transaction.send(Message(topic, b"1, too"))
        assert message.unique_id
        with pytest.raises(ValueError, match="declined"), outbox.begin(producer) as transaction:  # noqa: PT012
            transaction.send(Message(topic, b"2"))
            insert(transaction.session, 2)
            raise ValueError("declined")
        with pytest.raises(IntegrityError), outbox.begin(producer) as transaction:  # noqa: PT012
            transaction.send(message)
            insert(transaction.session, 1)
        with pytest.raises(MessageRefused, match="delayed"), outbox.begin(producer) as transaction:  # noqa: PT012
            insert(transaction.session, 3)
            with pytest.raises(MessageRefused):
                transaction.send(Message(topic, b"3", delay_s=1))
        with outbox.begin(producer) as transaction:
            for number in range(5):
                transaction.send(Message(topic, b"last %d" % number, sharding_key="one queue"))
        last = [b"last %d" % number for number in range(5)]
        eventually(lambda: len(set(delivered)) >= 7)
        assert set(delivered) == {b"1", b"1, too", *last}
        if site.kind == "firearrow":  # Apache's broker decides transactions in several threads
            assert [body for body in delivered if body in last] == last
        assert states(engine, producer.group) == ["C"] * 7, "rolled back at once, without a tombstone"
    with engine.connect() as connection:
        assert list(connection.scalars(text("select number from orders"))) == [1]


def test_a_check_while_the_transaction_is_open(
    outbox: Outbox, engine: Engine, name_server: str, topic: str, delivered: list[bytes]
) -> None:
    """The broker asks while the SQL transaction runs: not decided. It does not abort it, and asks again."""
    checker = Checked(outbox.check)
    with Producer(unique("shop"), name_server=name_server, checker=checker) as producer:
        with outbox.begin(producer) as transaction:
            transaction.send(Message(topic, b"slow"))
            insert(transaction.session, 7)
            eventually(lambda: len(checker.answers.get(b"slow", [])) >= 2, what="checks")
            assert set(checker.answers[b"slow"]) == {TransactionState.KEEP}
        eventually(lambda: b"slow" in delivered)
        assert TransactionState.ROLLBACK not in checker.answers[b"slow"]


def leave_undecided(outbox: Outbox, producer: Producer, topic: str, body: bytes, *, commits: bool) -> None:
    """As a process that dies after its half message, before or after the commit."""
    halves = ExitStack()
    with Session(outbox.engine) as session, session.begin():
        message = Message(topic, body)
        half = producer.transaction(message)
        sent: list[str] = []
        message.unique_id = f"OWN{time.time_ns()}"
        outbox._store(session, producer.group, message.unique_id)
        sent.append(halves.enter_context(half).id)
        half.leave_unknown()
        assert sent == [message.unique_id]
        if not commits:
            session.rollback()
    halves.close()


def test_checks_decide_what_was_left_open(
    outbox: Outbox, engine: Engine, name_server: str, topic: str, delivered: list[bytes]
) -> None:
    """A row: COMMIT. None: a tombstone, ROLLBACK, and a late commit with that id is impossible."""
    checker = Checked(outbox.check)
    with Producer(unique("shop"), name_server=name_server, checker=checker) as producer:
        leave_undecided(outbox, producer, topic, b"dead", commits=False)
        leave_undecided(outbox, producer, topic, b"alive", commits=True)
        eventually(lambda: b"alive" in delivered and b"dead" in checker.answers)
        assert checker.answers[b"dead"][0] is TransactionState.ROLLBACK
        assert checker.answers[b"alive"][0] is TransactionState.COMMIT
        eventually(lambda: states(engine, producer.group) == ["C", "R"])
        with engine.connect() as connection:
            query = text(
                "select transaction_id from firearrow_outbox where producer_group = :g and state = 'R'"
            )
            dead = connection.scalar(query, {"g": producer.group})
        with Session(engine) as session, pytest.raises(IntegrityError):
            outbox._store(session, producer.group, dead)
    assert b"dead" not in delivered


class Found:
    """A message as a check brings it."""

    def __init__(self, group: str, transaction_id: str, age_s: float = 0) -> None:
        self.message_id = self.transaction_id = transaction_id
        self.group = group
        self.born_timestamp = int((time.time() - age_s) * 1000)

    def get_property(self, name: str) -> str | None:
        return self.group if name == "PGROUP" else None


def test_two_checks_and_a_commit_at_once(outbox: Outbox, engine: Engine) -> None:
    """The first one decides: all checks of an id have one answer, and it is the one of the row."""
    group = unique("group")
    for number in range(10):
        found: Any = Found(group, f"id-{number}")
        answers: list[TransactionState] = []
        committed: list[bool] = []

        def commit(transaction_id: str = found.transaction_id, committed: list[bool] = committed) -> None:
            try:
                with Session(engine) as session, session.begin():
                    outbox._store(session, group, transaction_id)
                committed.append(True)
            except (IntegrityError, OperationalError):
                committed.append(False)

        def check(found: Any = found, answers: list[TransactionState] = answers) -> None:
            while (answer := outbox.check(found)) is TransactionState.KEEP:
                pass
            answers.append(answer)

        threads = [threading.Thread(target=each) for each in (check, commit, check)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        expected = TransactionState.COMMIT if committed[0] else TransactionState.ROLLBACK
        assert answers == [expected] * 2


def test_groups_are_apart_and_old_rows_are_deleted(outbox: Outbox, engine: Engine) -> None:
    """Services share a table. Without its rows, a half message that is older is not rolled back by mistake."""
    one, other = unique("one"), unique("other")
    with Session(engine) as session, session.begin():
        outbox._store(session, one, "id")
    same: Any = Found(other, "id")
    assert outbox.check(same) is TransactionState.ROLLBACK
    mine: Any = Found(one, "id")
    assert outbox.check(mine) is TransactionState.COMMIT
    assert Outbox(engine, keep_s=-10).clean(one) == 0, "a half message is younger than its row"
    short = Outbox(engine, keep_s=-CLEAN_AFTER_S - 10)
    assert short.clean(one) == 1
    assert short.clean(one) == 0
    assert states(engine, other) == ["R"]
    old: Any = Found(one, "id", age_s=outbox.keep_s + 60)
    assert outbox.check(old) is TransactionState.UNKNOWN
    strange: Any = Found(one, "x" * 65)
    with pytest.raises(ConfigError, match="no message of an outbox"):
        outbox.check(strange)
    assert states(engine, one) == []


def lose_the_answer(session: Session) -> None:
    raise OperationalError("commit", {}, ConnectionResetError("the answer is lost"))


def test_a_block_that_ends_its_transaction_itself(
    outbox: Outbox, engine: Engine, name_server: str, topic: str, delivered: list[bytes]
) -> None:
    """Then the table decides, whatever the block raises."""
    checker = Checked(outbox.check)
    with Producer(unique("shop"), name_server=name_server, checker=checker) as producer:
        with pytest.raises(ValueError, match="late"), outbox.begin(producer) as transaction:  # noqa: PT012
            transaction.send(Message(topic, b"committed"))
            transaction.session.commit()
            raise ValueError("late")
        with outbox.begin(producer) as transaction:
            transaction.send(Message(topic, b"rolled back"))
            transaction.session.rollback()
        with Session(engine) as session:
            event.listen(session, "after_commit", lose_the_answer)
            with pytest.raises(OperationalError), outbox.begin(producer, session) as transaction:  # noqa: PT012
                transaction.send(Message(topic, b"perhaps"))
                session.commit()
        eventually(lambda: {b"committed", b"perhaps"} <= set(delivered) and b"rolled back" in checker.answers)
        assert checker.answers[b"rolled back"][0] is TransactionState.ROLLBACK
    assert set(delivered) == {b"committed", b"perhaps"}


def test_what_is_refused(outbox: Outbox, engine: Engine, name_server: str, topic: str, tmp_path: Any) -> None:
    memory = create_engine("sqlite://")
    with pytest.raises(ConfigError, match="not one in memory"):
        Outbox(memory)
    memory.dispose()
    with Producer(unique("shop"), name_server=name_server, checker=outbox.check) as producer:
        with outbox.begin(producer) as transaction:
            insert(transaction.session, 1)
        for other, why in (
            (create_engine(f"sqlite:///{tmp_path}/other"), "checks would find no rows"),
            (engine.execution_options(isolation_level="AUTOCOMMIT"), "AUTOCOMMIT"),
        ):
            with (
                Session(other) as session,
                pytest.raises(ConfigError, match=why),
                outbox.begin(producer, session) as transaction,
            ):
                transaction.send(Message(topic, b"x"))
            other.dispose()
        with pytest.raises(ConfigError, match="savepoint"), outbox.begin(producer) as transaction:  # noqa: SIM117
            with transaction.session.begin_nested():
                transaction.send(Message(topic, b"x"))
    assert states(engine, producer.group) == []


@pytest.fixture
def absent() -> Outbox:
    """Its database does not answer."""
    return Outbox(create_engine("postgresql+psycopg://x@127.0.0.1:1/x", connect_args={"connect_timeout": 2}))


def test_a_database_that_does_not_answer_decides_nothing(absent: Outbox) -> None:
    found: Any = Found("group", "id")
    assert absent.check(found) is TransactionState.KEEP
    old: Any = Found("group", "id", age_s=absent.keep_s + 60)
    assert absent.check(old) is TransactionState.UNKNOWN, "brokers may give it up"


@pytest.fixture
def impatient(site: Peer) -> Iterator[Peer]:
    """It gives up after six checks."""
    quick = {"transactionCheckMax": "6", "transactionCheckInterval": "50", "transactionTimeOut": "50"}
    with Admin(site.name_server) as admin:
        [broker] = admin.cluster_info().brokers
        before = admin.broker_config(broker)
        admin.update_broker_config(broker, quick)
        yield site
        admin.update_broker_config(broker, {name: before[name] for name in quick})


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_a_database_that_is_away_for_longer_than_the_broker_asks(
    impatient: Peer, outbox: Outbox, absent: Outbox, topic: str
) -> None:
    """The half message is sent again in time, with its id and all that its sender set."""
    got: list[ReceivedMessage] = []
    checks: list[ReceivedMessage] = []

    def check(message: ReceivedMessage) -> TransactionState:
        checks.append(message)
        return (absent if len(checks) < 15 else outbox).check(message)

    consumer = BlockingConsumer(unique("reader"), name_server=impatient.name_server, options=OPTIONS)
    consumer.subscribe(topic, got.extend)
    with consumer, Producer(unique("shop"), name_server=impatient.name_server, checker=check) as producer:
        message = Message(topic, b"made", tags="tag", keys=["key"], properties={"a": "b"}, sharding_key="c")
        with Session(outbox.engine) as session:
            event.listen(session, "after_commit", lose_the_answer)
            with pytest.raises(OperationalError), outbox.begin(producer, session) as transaction:
                transaction.send(message)
        eventually(lambda: got, what="the message")
        eventually(lambda: states(outbox.engine, producer.group) == ["C"])
    first, last = checks[0], got[0]
    assert (
        {each.transaction_id for each in checks} == {first.transaction_id} == {last.get_property("UNIQ_KEY")}
    )
    assert (last.body, last.tags, list(last.keys), last.get_property("a")) == (b"made", "tag", ["key"], "b")
    assert last.get_property("__SHARDINGKEY") == "c"
    assert first_born_ms(checks[-1]) == first.born_timestamp < checks[-1].born_timestamp


def test_an_error_of_the_commit_is_decided_by_the_table(
    outbox: Outbox, engine: Engine, name_server: str, topic: str, delivered: list[bytes]
) -> None:
    """The answer to COMMIT is lost: it was made."""
    checker = Checked(outbox.check)
    with Producer(unique("shop"), name_server=name_server, checker=checker) as producer:
        with Session(engine) as session:
            event.listen(session, "after_commit", lose_the_answer)
            with pytest.raises(OperationalError), outbox.begin(producer, session) as transaction:
                transaction.send(Message(topic, b"made"))
        eventually(lambda: b"made" in delivered)
    assert set(delivered) == {b"made"}


def test_a_transaction_that_the_database_gave_up(
    outbox: Outbox, engine: Engine, name_server: str, topic: str, delivered: list[bytes]
) -> None:
    """PostgreSQL answers COMMIT with a rollback, without an error, after a statement that failed."""
    with Producer(unique("shop"), name_server=name_server, checker=outbox.check) as producer:
        if engine.dialect.name == "postgresql":
            with pytest.raises(SQLAlchemyError, match="aborted"), outbox.begin(producer) as transaction:  # noqa: PT012
                transaction.send(Message(topic, b"aborted"))
                with pytest.raises(SQLAlchemyError):
                    transaction.session.execute(text("select 1 / 0"))
        with pytest.raises(ClientError, match="rolled it back"), outbox.begin(producer) as transaction:  # noqa: PT012
            transaction.send(Message(topic, b"rolled back"))
            transaction.session.execute(text("rollback"))
        with outbox.begin(producer) as transaction:
            transaction.send(Message(topic, b"last"))
        eventually(lambda: b"last" in delivered)
        assert set(delivered) == {b"last"}
        assert states(engine, producer.group) == ["C"]


def test_sessions_that_do_not_decide(outbox: Outbox, engine: Engine, name_server: str, topic: str) -> None:
    """The driver commits each statement; an outer transaction may be rolled back after the session's commit."""
    own = {"isolation_level": None} if engine.dialect.name == "sqlite" else {"autocommit": True}
    commits_all = create_engine(engine.url, isolation_level="AUTOCOMMIT")
    driver_commits = create_engine(engine.url, connect_args=own)
    with Producer(unique("shop"), name_server=name_server, checker=outbox.check) as producer:
        for bind in (commits_all, driver_commits):
            with (
                Session(bind) as session,
                pytest.raises(ConfigError, match="AUTOCOMMIT"),
                outbox.begin(producer, session) as transaction,
            ):
                transaction.send(Message(topic, b"x"))
            bind.dispose()
        with (
            engine.connect() as connection,
            connection.begin(),
            Session(connection) as session,
            pytest.raises(ConfigError, match="bound to a connection"),
            outbox.begin(producer, session) as transaction,
        ):
            transaction.send(Message(topic, b"x"))
    assert states(engine, producer.group) == []


def test_sessions_of_another_schema_use_the_table_of_checks(
    outbox: Outbox, engine: Engine, name_server: str, topic: str
) -> None:
    """As programs with a schema for each of their customers do."""
    other = "main" if engine.dialect.name == "sqlite" else "customer"
    if other == "customer":
        with engine.begin() as connection:
            connection.execute(text(f"create schema if not exists {other}"))
            mapped = connection.execution_options(schema_translate_map={None: other})
            outbox.metadata.create_all(mapped)
    of_customer = engine.execution_options(schema_translate_map={None: other})
    with Producer(unique("shop"), name_server=name_server, checker=outbox.check) as producer:
        with Session(of_customer) as session, outbox.begin(producer, session) as transaction:
            transaction.send(Message(topic, b"x"))
        assert states(engine, producer.group) == ["C"]


def test_ids_cannot_be_guessed() -> None:
    """Otherwise a stranger's half message with the next id had a tombstone stored, which aborts that transaction."""
    ids = {with_new_id(Message("topic", b"")).unique_id or "" for _ in range(100)}
    assert len({each[:20] for each in ids}) == 100
    assert {len(each) for each in ids} == {32}
    assert len({each[20:27] for each in ids}) <= 2, "the time, by which brokers look for ids"


async def test_async(url: str, outbox: Outbox, engine: Engine, name_server: str, topic: str) -> None:
    """The same rules with AsyncSession: commit, failure, cancellation, a check while it is open."""
    delivered: list[bytes] = []
    made = create_async_engine(url.replace("sqlite:", "sqlite+aiosqlite:"))
    async_outbox = AsyncOutbox(made)
    answers: dict[bytes, list[TransactionState]] = {}

    async def check(message: ReceivedMessage) -> TransactionState:
        answer = await async_outbox.check(message)
        answers.setdefault(message.body, []).append(answer)
        return answer

    consumer = PushConsumer(unique("reader"), name_server=name_server, options=OPTIONS)
    consumer.subscribe(topic, lambda messages: delivered.extend(message.body for message in messages))
    async with AsyncProducer(unique("shop"), name_server=name_server, checker=check) as producer, consumer:
        async with async_outbox.begin(producer) as transaction:
            await transaction.session.execute(text("insert into orders values (1)"))
            await transaction.send(Message(topic, b"1"))
        with pytest.raises(IntegrityError):  # noqa: PT012
            async with async_outbox.begin(producer) as transaction:
                await transaction.send(Message(topic, b"2"))
                await transaction.session.execute(text("insert into orders values (1)"))
        with pytest.raises(ClientError, match="cancelled"):  # noqa: PT012
            async with async_outbox.begin(producer) as transaction:
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0):
                        await transaction.send(Message(topic, b"too slow"))
        async with async_outbox.begin(producer) as transaction:
            await transaction.send(Message(topic, b"slow"))
            await eventually_async(lambda: answers.get(b"slow"))

        async def cancelled() -> None:
            async with async_outbox.begin(producer) as transaction:
                await transaction.send(Message(topic, b"cancelled"))
                await asyncio.get_running_loop().create_future()

        task = asyncio.create_task(cancelled())
        await eventually_async(lambda: answers.get(b"cancelled"), what="a check of the open transaction")
        task.cancel()
        await asyncio.wait([task])
        await eventually_async(lambda: TransactionState.ROLLBACK in answers[b"cancelled"])
        await eventually_async(lambda: b"slow" in delivered)
        assert set(answers[b"slow"]) <= {TransactionState.KEEP, TransactionState.COMMIT}
        assert set(delivered) == {b"1", b"slow"}
        assert await async_outbox.clean(producer.group) == 0
    await made.dispose()
