"""The tables of FireArrow's wire: what a master pushes to its slaves, whole when they join and then as it changes, and
how a slave takes them over. Consumer offsets and delay offsets change by the journal (`journal_stream`).

Loop thread.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from firearrow._native.protocol import fastjson
from firearrow._native.store.log.journal_entries import Entry
from firearrow.broker.context.broker_context import BrokerContext
from firearrow.broker.replication.tables.slave_tables import follow_topics
from firearrow.broker.replication.wires.firearrow.frames import FrameError, Table, TableKind
from firearrow.broker.tables import json_fields
from firearrow.broker.tables.dataversion import DataVersion
from firearrow.broker.tables.groups import GroupConfig
from firearrow.broker.tables.offsets import followed_offsets
from firearrow.broker.tables.topics import TopicConfig

SAVED_AS = {
    TableKind.TOPICS: "topics",
    TableKind.GROUPS: "groups",
    TableKind.REQUEST_MODES: "modes",
    TableKind.CONSUMER_ORDERS: "orders",
    TableKind.RECEIPT_HANDLES: "receipts",
}
"""Tables that are pushed when they change, and the names under which they are saved."""
LARGE_BYTES, LARGE_EVERY_S = 1 << 16, 1.0
"""Larger tables are pushed at most once in this time."""
RECEIPTS_EVERY_S = 2.0
"""They change with each message; what the log has of them needs no push."""


@dataclass(frozen=True, slots=True)
class TableProgress:
    """What of the services belongs to these tables. `receipts`: empty: they are too many. `check_point` None:
    timerWheelEnable=false."""

    delays: Callable[[], bytes]
    follow_delays: Callable[[bytes], None]
    orders: Callable[[], bytes]
    follow_orders: Callable[[bytes], None]
    receipts: Callable[[], bytes]
    follow_receipts: Callable[[bytes], None]
    check_point: Callable[[], bytes] | None
    follow_check_point: Callable[[bytes], None] | None
    restore: Callable[[Entry], None]


class PushedTables:
    """The master's end."""

    def __init__(self, context: BrokerContext, progress: TableProgress) -> None:
        tables = context.tables
        self._loop = context.loop
        self._saver = context.saver
        self._store = context.store
        self._tables = tables
        self._texts: dict[TableKind, Callable[[], bytes]] = {
            TableKind.TOPICS: tables.topics.to_json,
            TableKind.GROUPS: tables.groups.to_json,
            TableKind.CONSUMER_OFFSETS: tables.offsets.to_json,
            TableKind.DELAY_OFFSETS: progress.delays,
            TableKind.REQUEST_MODES: tables.modes.to_json,
            TableKind.CONSUMER_ORDERS: progress.orders,
            TableKind.RECEIPT_HANDLES: progress.receipts,
        }
        if progress.check_point is not None:
            self._texts[TableKind.TIMER_CHECKPOINT] = progress.check_point
        self._changes = dict.fromkeys(SAVED_AS, -1)
        self._not_before = dict.fromkeys(SAVED_AS, 0.0)
        self._check_point = b""

    def whole(self) -> list[Table]:
        """All tables, for a slave that joins."""
        tables = [self._table(kind) for kind in self._texts]
        return [table for table in tables if table.text]

    def changed(self) -> list[Table]:
        """Those that have changed since the last call."""
        now, found = self._loop.time(), list[Table]()
        for kind, name in SAVED_AS.items():
            changes = self._saver.changes(name)
            if changes != self._changes[kind] and now >= self._not_before[kind]:
                self._changes[kind] = changes
                table = self._table(kind)
                self._not_before[kind] = now + _pause_s(table)
                if table.text:
                    found.append(table)
        if TableKind.TIMER_CHECKPOINT in self._texts:
            table = self._table(TableKind.TIMER_CHECKPOINT)
            if table.text != self._check_point:
                self._check_point = table.text
                found.append(table)
        return found

    def _table(self, kind: TableKind) -> Table:
        version = DataVersion()
        if kind is TableKind.TOPICS:
            version = self._tables.topics.version
        elif kind is TableKind.GROUPS:
            version = self._tables.groups.version
        return Table(kind, self._store.written, version, self._texts[kind]())


class FollowedTables:
    """The slave's end. `copied_ms`: when the last table was taken over; 0: none yet."""

    def __init__(self, context: BrokerContext, progress: TableProgress) -> None:
        self._tables = context.tables
        self._store = context.store
        self._saver = context.saver
        self._clock = context.clock
        self._progress = progress
        self._take: Mapping[TableKind, Callable[[Table], None]] = {
            TableKind.TOPICS: self._topics,
            TableKind.GROUPS: self._groups,
            TableKind.CONSUMER_OFFSETS: self._offsets,
            TableKind.DELAY_OFFSETS: self._delays,
            TableKind.REQUEST_MODES: self._modes,
            TableKind.TIMER_CHECKPOINT: self._timers,
            TableKind.CONSUMER_ORDERS: self._orders,
            TableKind.RECEIPT_HANDLES: self._receipts,
        }
        self.copied_ms = 0

    def take(self, table: Table) -> None:
        """Put the master's table in place of this slave's. FrameError: it is malformed; OSError."""
        try:
            self._take[table.kind](table)
        except (ValueError, KeyError, TypeError) as error:
            raise FrameError(f"the master's table {table.kind.name} cannot be taken over: {error}") from None
        self.copied_ms = self._clock.now_ms()

    def _topics(self, table: Table) -> None:
        found = json_fields.members_or_none(_parsed(table).get("topicConfigTable"), "topicConfigTable")
        configs = [TopicConfig.from_object(value) for value in found.values()]
        follow_topics(self._tables, self._store, configs, table.version, table.place)

    def _groups(self, table: Table) -> None:
        parsed = _parsed(table)
        found, forbidden = (
            json_fields.members_or_none(parsed.get(name), name)
            for name in ("subscriptionGroupTable", "forbiddenTable")
        )
        configs = [GroupConfig.from_object(value) for value in found.values()]
        self._tables.groups.follow(configs, forbidden, table.version)

    def _offsets(self, table: Table) -> None:
        self._tables.offsets.follow(followed_offsets(_parsed(table)))
        self._saver.schedule("offsets")

    def _delays(self, table: Table) -> None:
        self._progress.follow_delays(table.text)
        self._saver.schedule("delays")

    def _modes(self, table: Table) -> None:
        self._tables.modes.load(table.text)
        self._saver.schedule("modes")

    def _timers(self, table: Table) -> None:
        if self._progress.follow_check_point is not None:
            self._progress.follow_check_point(table.text)

    def _orders(self, table: Table) -> None:
        self._progress.follow_orders(table.text)
        self._saver.schedule("orders")

    def _receipts(self, table: Table) -> None:
        self._progress.follow_receipts(table.text)
        self._saver.schedule("receipts")


def _pause_s(table: Table) -> float:
    """Before the next push of the table."""
    if table.kind is TableKind.RECEIPT_HANDLES:
        return RECEIPTS_EVERY_S
    return LARGE_EVERY_S if len(table.text) > LARGE_BYTES else 0


def _parsed(table: Table) -> json_fields.Members:
    return json_fields.members(fastjson.loads(table.text), "it")
