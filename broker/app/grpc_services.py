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
from firearrow.broker.app.ports import Ports
from firearrow.broker.app.services import Services
from firearrow.broker.app.state import State
from firearrow.broker.base.errors import StartError
from firearrow.broker.base.peer import Peer
from firearrow.broker.net.server import ServerConnection
from firearrow.broker.pop.checkpoints import revive_topic

if TYPE_CHECKING:
    from firearrow.broker.grpc.renewals import BackgroundPeer, ReceiptHandleManager
    from firearrow.broker.grpc.service import GrpcService

log = logging.getLogger("firearrow.grpc")

DEFAULT_PORT = 8081
ONLY_GRPC = "this port serves gRPC alone: use the broker's port"


class GrpcServices:
    """`works()`: this broker is a master that has taken over. `unready()`: why it does not serve; None: it does."""

    def __init__(
        self,
        base: Foundation,
        state: State,
        ports: Ports,
        services: Services,
        *,
        works: Callable[[], bool],
        unready: Callable[[], Awaitable[str | None]],
    ) -> None:
        self._base = base
        self._state = state
        self._ports = ports
        self._receipts = services.messages.receipts
        self._works = works
        self._unready = unready
        self._requests: BackgroundPeer | None = None
        self._renewals: ReceiptHandleManager | None = None
        self._service: GrpcService | None = None
        self._missing = ""
        """Why there is no service; empty: nothing is known of it yet."""

    async def listen(self) -> None:
        """Open the port that is for gRPC alone, if the options name one. A default port that another process has is no
        fault: the broker's own port serves gRPC as well. StartError."""
        options = self._base.options
        is_default = options.grpc_port == DEFAULT_PORT
        if not options.grpc_port or (is_default and not self._ports.asked):
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

    def serve(self) -> None:
        """Also go on with what the last run renewed."""
        self._base.server.http2 = self.session
        if self._receipts:
            self._manage_receipts()

    def session(self, connection: ServerConnection) -> ByteProtocol | None:
        """What a connection speaks that has sent HTTP/2's preface; None: gRPC cannot be served."""
        try:
            if self._service is None and not self._missing:
                self._service = self._load()
            if self._service is None:
                return None
            session, connection.grpc = self._service.session(connection, connection)
            return session
        except ImportError as error:
            self._missing = f"protobuf cannot be loaded: {error}: pip install 'protobuf>=5'"
        except RuntimeError as error:  # Http2Unavailable
            self._missing = str(error)
            self._service = None
        log.error("clients of gRPC are not served: %s", self._missing)
        return None

    def stop(self) -> None:
        self._base.server.http2 = lambda connection: None
        if self._renewals is not None:
            self._renewals.stop()
        if self._service is not None:
            self._service.stop()

    def _load(self) -> "GrpcService":
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
            state.access.check,
            requests,
            renewals,
            self._unready,
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


def _refuse(request: RemotingCommand, peer: Peer) -> None:
    if not request.is_oneway:
        peer.reply(request.answer(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, ONLY_GRPC))
