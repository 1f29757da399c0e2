"""GrpcService: the methods of `apache.rocketmq.v2.MessagingService`, by their names, and what they share; gRPC's own
services. Loop thread.

Made at the first connection of HTTP/2, since it needs `protobuf`.
"""

from firearrow._native.fastpath.fast_connection import FastConnection
from firearrow._native.grpc.plain_acks import AckRules, PlainAcks
from firearrow._native.grpc.plain_sends import PlainSends, SendRules
from firearrow._native.http2.session import Http2Session
from firearrow.broker.base.message_ids import host_bytes
from firearrow.broker.base.peer import Peer
from firearrow.broker.grpc import messages, reflection
from firearrow.broker.grpc.acknowledging import AcknowledgingMethods
from firearrow.broker.grpc.call import Handle, Method
from firearrow.broker.grpc.connection import GrpcConnection
from firearrow.broker.grpc.context import GrpcContext, GrpcParts
from firearrow.broker.grpc.health import Health
from firearrow.broker.grpc.lite import LiteMethods
from firearrow.broker.grpc.offsets import OffsetMethods
from firearrow.broker.grpc.receiving import ReceivingMethods
from firearrow.broker.grpc.routes import RouteMethods
from firearrow.broker.grpc.sending import SendingMethods
from firearrow.broker.grpc.sessions import SessionMethods

SEND_BYTES_MAX = 1 << 30
"""`grpcMaxInboundMessageSize` bounds it as well, and is meant for bodies."""


class GrpcService:
    def __init__(self, parts: GrpcParts) -> None:
        self._context = GrpcContext.of(parts)
        self._sending, self._acks = SendingMethods(self._context), AcknowledgingMethods(self._context)
        self._methods = {method.name: method for method in methods(self._context, self._sending, self._acks)}
        self._sender = parts.sender
        self._ack_templates = parts.ack_templates
        self._rules: tuple[SendRules, AckRules] | None = None
        self._health = Health(parts.loop, parts.unready, messages.SERVICES)
        self._others = self._health.methods() | reflection.methods()

    def session(self, connection: FastConnection, peer: Peer) -> tuple[Http2Session, GrpcConnection]:
        """What a connection speaks from now on, and its calls. Http2Unavailable."""
        bytes_max = self._context.config.options.grpc_message_bytes_max
        plain_sends = self._plain_sends(connection, peer)
        calls = GrpcConnection(self._context, self._methods, self._others, peer, plain_sends)
        return Http2Session(connection, calls.accept, bytes_max, plain_sends), calls

    def _plain_sends(self, connection: FastConnection, peer: Peer) -> PlainSends | None:
        sender = self._sender()
        if sender is None:
            return None
        if self._rules is None:
            self._rules = self._sending.rules(sender), self._acks.rules(sender, self._ack_templates)
        sends, acks = self._rules
        connection.host = host_bytes(*peer.remote)  # a port for gRPC alone has not set it
        return PlainSends(sends, connection, PlainAcks(acks, connection))

    def stop(self) -> None:
        self._health.stop()


def methods(context: GrpcContext, sending: SendingMethods, acks: AcknowledgingMethods) -> list[Method]:
    routes, receiving = RouteMethods(context), ReceivingMethods(context)
    sessions, offsets = SessionMethods(context), OffsetMethods(context)
    lite = LiteMethods(context)
    handles: dict[str, Handle] = {
        "QueryRoute": routes.query_route,
        "QueryAssignment": routes.query_assignment,
        "SendMessage": sending.send,
        "EndTransaction": sending.end_transaction,
        "RecallMessage": sending.recall,
        "ReceiveMessage": receiving.receive,
        "AckMessage": acks.ack,
        "ChangeInvisibleDuration": acks.change,
        "ForwardMessageToDeadLetterQueue": acks.forward,
        "Heartbeat": sessions.heartbeat,
        "NotifyClientTermination": sessions.terminate,
        "PullMessage": offsets.pull,
        "UpdateOffset": offsets.update_offset,
        "GetOffset": offsets.get_offset,
        "QueryOffset": offsets.query_offset,
        "SyncLiteSubscription": lite.sync,
    }
    found = [Method(name, handle, *messages.method_classes(name)) for name, handle in handles.items()]
    found = [
        each._replace(bytes_max=SEND_BYTES_MAX) if each.name == "SendMessage" else each for each in found
    ]
    classes = messages.method_classes("Telemetry")
    telemetry = Method(
        "Telemetry", sessions.telemetry, *classes, streams=True, ended=sessions.telemetry_ended
    )
    return [*found, telemetry]
