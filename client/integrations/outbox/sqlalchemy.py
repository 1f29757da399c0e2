"""Outbox and AsyncOutbox: messages of SQLAlchemy's transactions. `decision` has the rule.

`Outbox` is for Session and the producer of firearrow.client.blocking, `AsyncOutbox` for AsyncSession and the one of
firearrow.client. Several services may share a table: a row belongs to a producer group.
"""

import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager, suppress
from types import TracebackType
from typing import Any, Generic, NamedTuple, TypeVar

try:
    from sqlalchemy import (
        BigInteger,
        Column,
        Connection,
        Engine,
        Insert,
        MetaData,
        String,
        Table,
        and_,
        delete,
        insert,
        select,
        text,
    )
    from sqlalchemy.exc import IntegrityError, InterfaceError, OperationalError, SQLAlchemyError
    from sqlalchemy.exc import TimeoutError as PoolTimeoutError
    from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
    from sqlalchemy.orm import Session
    from sqlalchemy.pool import SingletonThreadPool, StaticPool
    from sqlalchemy.sql.functions import count
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "sqlalchemy is missing: pip install 'firearrow[sqlalchemy]'", name="sqlalchemy"
    ) from error

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client import blocking
from firearrow.client.base.errors import ClientError, ConfigError
from firearrow.client.base.message import Message
from firearrow.client.integrations.outbox.decision import (
    COMMITTED,
    GROUP_CHARS,
    ID_CHARS,
    KEEP_S,
    LOCK_WAIT_MS,
    ROLLED_BACK,
    TABLE,
    decide,
    deleted_before,
    undecided,
    with_new_id,
)
from firearrow.client.send import producer, transactions
from firearrow.client.send.transactions import TransactionState

UNDECIDED = (OperationalError, InterfaceError, PoolTimeoutError, OSError)
"""What a database raises that does not answer, or has the transaction open."""
IDS_AT_ONCE = 1000
"""Databases limit the parameters of a statement."""
Half = TypeVar("Half", blocking.Transaction, transactions.Transaction)

__all__ = ["AsyncOutbox", "AsyncOutboxTransaction", "Outbox", "OutboxTransaction"]


def __dir__() -> list[str]:
    return sorted(__all__)


class _Rows(NamedTuple):
    """See `decision.Rows`."""

    connection: Connection
    table: Table

    def find(self, group: str, transaction_id: str) -> str | None:
        columns = self.table.c
        key = and_(columns.producer_group == group, columns.transaction_id == transaction_id)
        found: str | None = self.connection.scalar(select(columns.state).where(key))
        return found

    def store_tombstone(self, group: str, transaction_id: str) -> bool:
        if self.connection.dialect.name == "postgresql":
            self.connection.execute(text(f"set local lock_timeout = {LOCK_WAIT_MS}"))
        try:
            self.connection.execute(_row(self.table, group, transaction_id, ROLLED_BACK))
            self.connection.commit()
        except IntegrityError:
            self.connection.rollback()
            return False
        return True


def _row(table: Table, group: str, transaction_id: str, state: str) -> Insert:
    return insert(table).values(
        producer_group=group, transaction_id=transaction_id, state=state, created_s=int(time.time())
    )


class _OutboxTable:
    """`table` is in `metadata`: create it with `metadata.create_all`, or by a migration.

    `keep_s`: how long rows are kept, and an hour longer. Half messages that are older are not decided any more. All
    programs that share the table need the same.
    """

    def __init__(self, engine: Engine, table: str, metadata: MetaData | None, keep_s: float) -> None:
        """ConfigError: checks would see what is not committed, or nothing."""
        if isinstance(engine.pool, StaticPool | SingletonThreadPool):
            raise ConfigError("an outbox needs a database with several connections, not one in memory")
        self._engine = engine
        self.keep_s = keep_s
        self.table = Table(
            table,
            MetaData() if metadata is None else metadata,
            Column("producer_group", String(GROUP_CHARS), primary_key=True),
            Column("transaction_id", String(ID_CHARS), primary_key=True),
            Column("state", String(1), nullable=False),
            Column("created_s", BigInteger, nullable=False, index=True),
        )
        self.metadata = self.table.metadata

    def _decide(self, connection: Connection, message: ReceivedMessage) -> TransactionState:
        return decide(_Rows(connection, self.table), message, self.keep_s)

    def _clean(self, connection: Connection, group: str) -> int:
        columns = self.table.c
        old = columns.created_s < deleted_before(self.keep_s)
        deleted = connection.execute(delete(self.table).where(columns.producer_group == group, old))
        connection.commit()
        return deleted.rowcount

    def _store(self, session: Session, group: str, transaction_id: str | None) -> None:
        """Insert the row of a message. ConfigError: the session does not decide about rows that checks read."""
        assert transaction_id is not None
        row = _row(self.table, group, transaction_id, COMMITTED)
        if isinstance(session.get_bind(clause=row), Connection):
            raise ConfigError(
                "the session is bound to a connection, whose transaction may be rolled back after the session's "
                "commit: bind it to an engine"
            )
        connection = session.connection(bind_arguments={"clause": row})
        url, own = connection.engine.url, self._engine.url
        if (url.host, url.port, url.database) != (own.host, own.port, own.database):
            raise ConfigError(f"the session uses {url!r}, the outbox {own!r}: checks would find no rows")
        if _commits_each_statement(connection):
            raise ConfigError(
                "the session commits each statement (AUTOCOMMIT): an outbox needs a transaction"
            )
        if session.in_nested_transaction():
            raise ConfigError("a savepoint is open, which may be rolled back alone: send outside of it")
        session.execute(row, execution_options=self._schemas())

    def _confirm(self, session: Session, group: str, ids: Sequence[str]) -> None:
        """Before the commit: an error that the block has caught may have aborted the transaction, which PostgreSQL
        rolls back at COMMIT without an error. ClientError, or what the database raises: nothing is committed."""
        columns = self.table.c
        for at in range(0, len(ids), IDS_AT_ONCE):
            some = ids[at : at + IDS_AT_ONCE]
            query = select(count()).where(columns.producer_group == group, columns.transaction_id.in_(some))
            if session.scalar(query, execution_options=self._schemas()) != len(some):
                raise ClientError(
                    "rows of messages are not in the SQL transaction: the block has rolled it back"
                )

    def _schemas(self) -> dict[str, Any]:
        """The session may have a schema for each customer, but checks read one table."""
        return {
            "schema_translate_map": self._engine.get_execution_options().get("schema_translate_map") or {}
        }


def _commits_each_statement(connection: Connection) -> bool:
    """AUTOCOMMIT: of the session, of its engine, or of the driver."""
    driver = connection.connection.dbapi_connection
    assert driver is not None
    try:
        autocommit = connection.dialect.detect_autocommit_setting(driver)
    except NotImplementedError:
        return connection.get_execution_options().get("isolation_level") == "AUTOCOMMIT"
    if connection.dialect.name == "sqlite":  # an event of the program may have begun a transaction
        return autocommit and not connection.connection.driver_connection.in_transaction  # type: ignore[union-attr]
    return autocommit


class _Decisions(Generic[Half]):
    """The half messages of a SQL transaction, which are committed or rolled back with it."""

    def __init__(self) -> None:
        self._sent: list[Half] = []
        self._failed: BaseException | None = None

    def raise_failure(self) -> None:
        """What a send raised, also if the block has caught it."""
        if isinstance(self._failed, Exception):
            raise self._failed
        if self._failed is not None:  # the block has caught a cancellation: this task is not cancelled
            raise ClientError("a send was cancelled, so the SQL transaction is rolled back") from self._failed

    def ids(self) -> list[str]:
        return [half.id for half in self._sent]

    def leave_unknown(self) -> None:
        """The SQL transaction is being committed, or the block has ended it itself: only the table knows how."""
        for half in self._sent:
            half.leave_unknown()

    def commit(self) -> None:
        for half in self._sent:
            half.commit()


class OutboxTransaction(_Decisions[blocking.Transaction]):
    """A SQL transaction with messages: `session` is its session."""

    def __init__(self, outbox: "Outbox", producer: blocking.Producer, session: Session) -> None:
        super().__init__()
        self.session = session
        self._outbox = outbox
        self._producer = producer

    def send(self, message: Message, *, timeout_s: float | None = None) -> None:
        """Deliver the message if the SQL transaction commits. ConfigError, the errors of a send, of the database.

        After an error the SQL transaction is rolled back at the end of the block, also if the error is caught.
        """
        own = with_new_id(message)
        try:
            self._outbox._store(self.session, self._producer.group, own.unique_id)
            half = self._producer.transaction(own, timeout_s=timeout_s)
            self._sent.append(half.__enter__())
        except BaseException as error:
            self._failed = error
            raise
        message.unique_id = own.unique_id

    def end(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Send the decisions, in the order of the messages."""
        for half in self._sent:
            half.__exit__(kind, error, trace)


class AsyncOutboxTransaction(_Decisions[transactions.Transaction]):
    """A SQL transaction with messages: `session` is its session."""

    def __init__(self, outbox: "AsyncOutbox", producer: producer.Producer, session: AsyncSession) -> None:
        super().__init__()
        self.session = session
        self._outbox = outbox
        self._producer = producer

    async def send(self, message: Message, *, timeout_s: float | None = None) -> None:
        """Deliver the message if the SQL transaction commits. ConfigError, the errors of a send, of the database.

        After an error the SQL transaction is rolled back at the end of the block, also if the error is caught.
        """
        own = with_new_id(message)
        try:
            await self.session.run_sync(self._outbox._store, self._producer.group, own.unique_id)
            half = self._producer.transaction(own, timeout_s=timeout_s)
            self._sent.append(await half.__aenter__())
        except BaseException as error:
            self._failed = error
            raise
        message.unique_id = own.unique_id

    async def end(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Send the decisions, in the order of the messages."""
        for half in self._sent:
            await half.__aexit__(kind, error, trace)


class Outbox(_OutboxTable):
    """For Session and the producer of firearrow.client.blocking, whose checker is `check`."""

    def __init__(
        self,
        engine: Engine,
        *,
        table: str = TABLE,
        metadata: MetaData | None = None,
        keep_s: float = KEEP_S,
    ) -> None:
        super().__init__(engine, table, metadata, keep_s)
        self.engine = engine

    @contextmanager
    def begin(
        self, producer: blocking.Producer, session: Session | None = None
    ) -> Iterator[OutboxTransaction]:
        """Begin a SQL transaction of `session`, by default of a new one; commit at the end, roll back on an error.

        An error of the commit itself may mean that it was made: then the table decides about the messages.
        """
        with ExitStack() as stack:
            own = session
            if own is None:
                own = stack.enter_context(Session(self.engine, expire_on_commit=False))
            made, sql = OutboxTransaction(self, producer, own), own.begin()
            stack.push(made.end)
            try:
                yield made
                made.raise_failure()
                if own.get_transaction() is sql:
                    self._confirm(own, producer.group, made.ids())
            except BaseException:
                if not sql.is_active:
                    made.leave_unknown()
                with suppress(SQLAlchemyError):  # what the block raised counts
                    own.rollback()
                raise
            made.leave_unknown()
            if own.get_transaction() is sql:
                own.commit()
                made.commit()

    def check(self, message: ReceivedMessage) -> TransactionState:
        """The `checker` of producers."""
        try:
            with self.engine.connect() as connection:
                return self._decide(connection, message)
        except UNDECIDED as error:
            return undecided(message, error, self.keep_s)

    def clean(self, group: str) -> int:
        """Delete the rows of a producer group that no check needs any more; their number."""
        with self.engine.connect() as connection:
            return self._clean(connection, group)


class AsyncOutbox(_OutboxTable):
    """For AsyncSession and the producer of firearrow.client, whose checker is `check`."""

    def __init__(
        self,
        engine: AsyncEngine,
        *,
        table: str = TABLE,
        metadata: MetaData | None = None,
        keep_s: float = KEEP_S,
    ) -> None:
        super().__init__(engine.sync_engine, table, metadata, keep_s)
        self.engine = engine

    @asynccontextmanager
    async def begin(
        self, producer: producer.Producer, session: AsyncSession | None = None
    ) -> AsyncIterator[AsyncOutboxTransaction]:
        """Begin a SQL transaction of `session`, by default of a new one; commit at the end, roll back on an error.

        An error of the commit itself may mean that it was made: then the table decides about the messages.
        """
        async with AsyncExitStack() as stack:
            own = session
            if own is None:
                new = AsyncSession(self.engine, expire_on_commit=False)
                own = await stack.enter_async_context(new)
            made, sql = AsyncOutboxTransaction(self, producer, own), await own.begin()
            stack.push_async_exit(made.end)
            try:
                yield made
                made.raise_failure()
                if own.get_transaction() is sql:
                    await own.run_sync(self._confirm, producer.group, made.ids())
            except BaseException:
                if not sql.is_active:
                    made.leave_unknown()
                with suppress(SQLAlchemyError):
                    await own.rollback()
                raise
            made.leave_unknown()
            if own.get_transaction() is sql:
                await own.commit()
                made.commit()

    async def check(self, message: ReceivedMessage) -> TransactionState:
        """The `checker` of producers."""
        try:
            async with self.engine.connect() as connection:
                return await connection.run_sync(self._decide, message)
        except UNDECIDED as error:
            return undecided(message, error, self.keep_s)

    async def clean(self, group: str) -> int:
        """Delete the rows of a producer group that no check needs any more; their number."""
        async with self.engine.connect() as connection:
            return await connection.run_sync(self._clean, group)
