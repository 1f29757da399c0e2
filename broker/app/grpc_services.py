"""GrpcServices: the clients of gRPC, on the ports of the broker and on one of their own. Loop thread.

Nothing of it is loaded before the first connection of HTTP/2 comes: neither `protobuf` nor libnghttp2.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from firearrow._native.wire.codes import ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow._native.wire.connection import ByteProtocol
from firearrow.broker.app.foundation import Foundation
from firearrow.broker.app.ports import DEFAULT_GRPC_PORT, Ports
from firearrow.broker.app.replication import Replication
from firearrow.broker.app.services import Services
from firearrow.broker.app.state import State
from firearrow.broker.base.errors import StartError
from firearrow.broker.base.peer import Peer
from firearrow.broker.net.server import ServerConnection
from firearrow.broker.pop.checkpoints import revive_topic
from firearrow.broker.replication.slave import Slave

if TYPE_CHECKING:
    from firearrow.broker.grpc.context import SlaveRole
    from firearrow.broker.grpc.renewals import BackgroundPeer, ReceiptHandleManager
    from firearrow.broker.grpc.service import GrpcService

log = logging.getLogger("firearrow.grpc")

ONLY_GRPC = "this port serves gRPC alone: use the broker's port"
INSTALL = "pip install 'protobuf>=5'; with the Debian package, apt install python3-protobuf"
NOT_SERVED = "clients of gRPC are not served"
SENDS_TO_MASTER = "this broker is a slave, and its master is {}"


class GrpcServices:
    """`works()`: this broker is a master that has taken over. `unready()`: why it does not serve; None: it does."""

    def __init__(
        self,
        base: Foundation,
        state: State,
        ports: Ports,
        services: Services,
        replication: Replication,
        *,
        works: Callable[[], bool],
        unready: Callable[[], Awaitable[str | None]],
    ) -> None:
        self._base = base
        self._state = state
        self._ports = ports
        self._replication = replication
        self._receipts = services.messages.receipts
        self._ack_templates = services.messages.ack_templates
        self._works = works
        self._unready = unready
        self._requests: BackgroundPeer | None = None
        self._renewals: ReceiptHandleManager | None = None
        self._service: GrpcService | None = None
        self._fault = ""
        """Why there can be no service; empty: nothing is known of it yet."""
        self._reported: set[str] = set()

    async def listen(self) -> None:
        """Open the port that is for gRPC alone, if the options name one. A default port that another process has is no
        fault: the broker's own port serves gRPC as well. StartError."""
        options = self._base.options
        is_default = options.grpc_port == DEFAULT_GRPC_PORT
        if not options.grpc_port or (is_default and self._is_left_out(options.grpc_port)):
            return
        try:
            address = await self._base.server.listen(
                options.bind_address, options.grpc_port, _refuse, option="grpcServerPort"
            )
        except StartError as error:
            if not is_default:
                raise
            log.info("clients of gRPC can use port %d only: %s", self._ports.address[1], error)
        else:
            log.info("gRPC on %s:%d", *address)

    def _is_left_out(self, port: int) -> bool:
        """The broker has found ports of its own, or serves this one already."""
        ports = self._ports
        own = {address[1] for address in (ports.address, ports.vip, ports.naming) if address is not None}
        return ports.asked == 0 or port in own

    def serve(self) -> None:
        """Also go on with what the last run renewed."""
        self._base.server.http2 = self.session
        if self._receipts:
            try:
                self._manage_receipts()
            except (ImportError, AttributeError) as error:
                self._cannot_use_protobuf(error)

    def session(self, connection: ServerConnection) -> ByteProtocol | None:
        """What a connection speaks that has sent HTTP/2's preface; None: it is closed, as libnghttp2 is missing."""
        from firearrow._native.http2.session import Http2Unavailable, refusing_session  # noqa: PLC0415

        try:
            service = self._service or self._load()
            if service is None:
                return refusing_session(connection, f"{NOT_SERVED}: {self._fault}")
            session, connection.grpc = service.session(connection, connection)
            return session
        except Http2Unavailable as error:
            self._report(str(error))
            return None

    def stop(self) -> None:
        self._base.server.http2 = lambda connection: None
        if self._renewals is not None:
            self._renewals.stop()
        if self._service is not None:
            self._service.stop()

    def _load(self) -> "GrpcService | None":
        """None: `protobuf` cannot be used, which is found out once."""
        if self._fault:
            return None
        try:
            self._service = self._made()
        except (ImportError, AttributeError) as error:
            self._cannot_use_protobuf(error)
        return self._service

    def _cannot_use_protobuf(self, error: Exception) -> None:
        """It is missing, or too old."""
        self._fault = f"protobuf cannot be used ({error}): {INSTALL}"
        self._report(self._fault)

    def _report(self, fault: str) -> None:
        if fault not in self._reported:
            self._reported.add(fault)
            log.error("%s: %s", NOT_SERVED, fault)

    def _made(self) -> "GrpcService":
        from firearrow.broker.grpc.context import GrpcParts  # noqa: PLC0415
        from firearrow.broker.grpc.service import GrpcService  # noqa: PLC0415

        base, state = self._base, self._state
        requests, renewals = self._manage_receipts()
        parts = GrpcParts(
            base.loop,
            state.tables,
            base.config,
            base.clock,
            base.server.grpc_times,
            self._ports.grpc_dispatch,
            lambda: self._ports.fast_handlers.sender,
            self._ack_templates,
            state.access.check,
            requests,
            renewals,
            self._unready,
            self._slave(),
        )
        return GrpcService(parts)

    def _manage_receipts(self) -> "tuple[BackgroundPeer, ReceiptHandleManager]":
        from firearrow.broker.grpc.renewals import (  # noqa: PLC0415
            BackgroundPeer,
            ReceiptHandleManager,
            RenewalParts,
        )

        if self._requests is None or self._renewals is None:
            base, tables = self._base, self._state.tables
            self._requests = BackgroundPeer(self._ports.grpc_dispatch, self._ports.address)
            topic = revive_topic(base.options.cluster_name)
            self._renewals = ReceiptHandleManager(
                RenewalParts(
                    base.loop,
                    base.clock,
                    base.store,
                    tables.offsets,
                    self._receipts,
                    self._requests,
                    topic,
                    self._works,
                )
            )
        return self._requests, self._renewals

    def _slave(self) -> "SlaveRole | None":
        """None: this broker is a master."""
        from firearrow.broker.grpc.context import SlaveRole  # noqa: PLC0415

        replication, side = self._replication, self._replication.side
        if not isinstance(side, Slave):
            return None

        def fault() -> str:
            return replication.write_fault() or SENDS_TO_MASTER.format(side.master.text or "not known yet")

        return SlaveRole(
            lambda: side.acting is not None and side.acting.is_acting,
            lambda: side.master.address if side.master.is_online else None,
            fault,
        )


def _refuse(request: RemotingCommand, peer: Peer) -> None:
    if not request.is_oneway:
        peer.reply(request.answer(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, ONLY_GRPC))
