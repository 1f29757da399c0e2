"""GrpcContext: what the methods of gRPC share: the broker's tables and dispatch, the clients, their renewals.

A frozen value, made at the first connection. Loop thread.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import NamedTuple

from firearrow._native.fastpath.ack_templates import AckTemplates
from firearrow._native.fastpath.request_times import RequestTimes
from firearrow._native.fastpath.send_message import Sender
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base.clock import Clock
from firearrow.broker.base.config import Config
from firearrow.broker.base.peer import Address, Check, Peer
from firearrow.broker.context.broker_context import Tables
from firearrow.broker.grpc.client import GrpcClients
from firearrow.broker.grpc.renewals import BackgroundPeer, ReceiptHandleManager


class SlaveRole(NamedTuple):
    """What clients are to know of a slave. `acts()`: it acts as the master; `master()`: where that is, None: it is not
    known; `fault()`: why it takes no messages."""

    acts: Callable[[], bool]
    master: Callable[[], Address | None]
    fault: Callable[[], str]


class GrpcParts(NamedTuple):
    """What gRPC needs of the broker. `dispatch` handles requests of remoting, which `check` has let through; None:
    everyone may do everything. `sender()`: the fast path of sends; None: there is none now; `ack_templates`: that of
    acknowledgements. `requests`: makes those of the broker itself, for clients. `unready()`: why the broker does not
    serve, as `/readyz` states it. `slave` None: it is a master."""

    loop: asyncio.AbstractEventLoop
    tables: Tables
    config: Config
    clock: Clock
    times: RequestTimes
    dispatch: Callable[[RemotingCommand, Peer], None]
    sender: Callable[[], Sender | None]
    ack_templates: AckTemplates
    check: Check | None
    requests: BackgroundPeer
    renewals: ReceiptHandleManager
    unready: Callable[[], Awaitable[str | None]]
    slave: SlaveRole | None


@dataclass(frozen=True, slots=True)
class GrpcContext:
    """As GrpcParts, and the clients that are online."""

    loop: asyncio.AbstractEventLoop
    tables: Tables
    config: Config
    clock: Clock
    dispatch: Callable[[RemotingCommand, Peer], None]
    check: Check | None
    slave: SlaveRole | None
    clients: GrpcClients
    requests: BackgroundPeer
    renewals: ReceiptHandleManager

    @staticmethod
    def of(parts: GrpcParts) -> "GrpcContext":
        clients = GrpcClients(parts.loop, parts.times)
        parts.renewals.is_online, clients.ended = clients.is_online, parts.renewals.lost
        return GrpcContext(
            parts.loop,
            parts.tables,
            parts.config,
            parts.clock,
            parts.dispatch,
            parts.check,
            parts.slave,
            clients,
            parts.requests,
            parts.renewals,
        )
