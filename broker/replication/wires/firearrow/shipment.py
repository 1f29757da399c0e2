"""Shipment: what a master does for its slaves of FireArrow's wire: proves, founds the pair, ships journal and tables.

Loop thread.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from firearrow._native.store.message_store import MessageStore
from firearrow.broker.append.progress_journal import Journal
from firearrow.broker.base.clock import Clock
from firearrow.broker.replication.session.wire import SenderHost, Traffic
from firearrow.broker.replication.wires.firearrow.agreement import OwnLog
from firearrow.broker.replication.wires.firearrow.frames import Table, TableKind, table_frame
from firearrow.broker.replication.wires.firearrow.handshake import WITH_RECEIPTS, RefusalCode, Refused
from firearrow.broker.replication.wires.firearrow.journal_stream import journal_frames, missed_entries
from firearrow.broker.replication.wires.firearrow.sender import FireArrowSender
from firearrow.broker.replication.wires.firearrow.tables import PushedTables

log = logging.getLogger("firearrow.replication")

STATES: dict[int, str] = {RefusalCode.DIVERGED: "diverged", RefusalCode.BEHIND: "behind the log"}
"""Of slaves that were refused, as `State`."""

Outdated = Callable[[int, str], None]
"""`(epoch, by)`: a slave has proved that there is a newer epoch than this master's."""


@dataclass(frozen=True, slots=True)
class ShippedParts:
    """What a master needs for slaves of FireArrow's wire. `secret`: empty: none. `isolated`: slaves get the log alone,
    until `go_online`: their tables are the newer ones."""

    clock: Clock
    journal: Journal
    log: OwnLog
    tables: PushedTables
    secret: bytes
    outdated: Outdated
    isolated: bool


class Shipment:
    """What connections of this wire ask of their master (`FireArrowHost`). `confirmed`: as there."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        store: MessageStore,
        parts: ShippedParts,
        host: SenderHost,
        confirmed: Callable[[FireArrowSender], int],
    ) -> None:
        self._loop = loop
        self._store = store
        self._parts = parts
        self._connections: dict[FireArrowSender, None] = {}
        self._host = host
        self._drains = False
        self._isolated = parts.isolated
        self.secret = parts.secret
        self.confirmed = confirmed

    def now_ms(self) -> int:
        return self._parts.clock.now_ms()

    def accept(self, traffic: Traffic) -> FireArrowSender:
        connection = FireArrowSender(self._loop, traffic, self._store, self._parts.log, self)
        self._connections[connection] = None
        return connection

    def acknowledged(self, connection: FireArrowSender) -> None:
        self._host.on_acknowledged(connection)

    # ---- the handshake ----

    def proved(self, connection: FireArrowSender) -> None:
        """Now its summary counts. Refused, OSError."""
        summary, announced, parts = connection.summary, connection.announced, self._parts
        assert summary is not None
        assert announced is not None
        identity, epochs = parts.log.identity, parts.log.epochs
        if summary.epoch > announced.epoch:
            parts.outdated(summary.epoch, "{}:{}".format(*connection.traffic.remote))
            raise Refused(
                RefusalCode.OLD_EPOCH,
                f"this master is of epoch {announced.epoch}, the slave has epoch {summary.epoch}: another broker was "
                "promoted; start this one as its slave",
            )
        if summary.node == identity.node:
            raise Refused(
                RefusalCode.SAME_NODE, "the slave's store was copied from this broker's, with its id"
            )
        identity.found_pair()
        if epochs.last < announced.epoch:
            epochs.replace(announced.epochs)
        for other in list(self._connections):
            is_proved = other is not connection and other.is_proved
            if is_proved and other.summary is not None and other.summary.node == summary.node:
                other.refuse(RefusalCode.SAME_NODE, "another connection has the id of this slave's store")

    def joined(self, connection: FireArrowSender) -> None:
        """Everything that was noted before is in these entries and tables, everything later comes by `feed`."""
        if self._isolated:
            return
        parts = self._parts
        if not self._drains:
            parts.journal.start_draining(self._send)
            self._drains = True
        self.feed()
        connection.queue_first(missed_entries(parts.journal))
        tables = [table for table in parts.tables.whole() if _knows(connection, table)]
        connection.queue_first(map(table_frame, tables))

    def go_online(self) -> None:
        """From now on our journal and tables are the newer ones: slaves that have joined get them."""
        self._isolated = False
        for connection in list(self._connections):
            if connection.has_joined:
                try:
                    self.joined(connection)
                except (OSError, ValueError) as error:
                    connection.close(f"it cannot join: {error}")
                connection.send()

    # ---- the stream ----

    def feed(self) -> None:
        if not self._drains:
            return
        frames = journal_frames(self._parts.journal.drain())
        if frames:
            for connection in list(self._connections):
                connection.queue(frames)

    def _send(self) -> None:
        for connection in list(self._connections):
            connection.send()

    def push_tables(self) -> None:
        """Those that have changed. Call it several times a second."""
        if not self._drains:
            return
        self.feed()
        try:
            frames = [(table, table_frame(table)) for table in self._parts.tables.changed()]
        except ValueError as error:
            return log.error("a table is not copied to slaves: %s", error)
        for connection in list(self._connections):
            connection.queue(encoded for table, encoded in frames if _knows(connection, table))
        return None

    def left(self, connection: FireArrowSender, why: str, code: int) -> None:
        self._connections.pop(connection, None)
        if self._drains and not self._connections:
            self._drains = False
            self._parts.journal.stop_draining()
        self._host.on_left(connection, why, STATES.get(code, "refused") if code >= 0 else "")


def _knows(connection: FireArrowSender, table: Table) -> bool:
    """Whether its slave knows tables of this kind."""
    version = 0 if connection.summary is None else connection.summary.version
    return table.kind is not TableKind.RECEIPT_HANDLES or version >= WITH_RECEIPTS
