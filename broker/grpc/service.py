"""GrpcService: the methods of `apache.rocketmq.v2.MessagingService`, by their names, and what they share; gRPC's own
services. Loop thread.

Made at the first connection of HTTP/2, since it needs `protobuf`.
"""

from firearrow._native.http2.session import Http2Session
from firearrow._native.wire.connection import Connection
from firearrow.broker.base.peer import Peer
from firearrow.broker.grpc import messages, reflection
from firearrow.broker.grpc.acknowledging import AcknowledgingMethods
from firearrow.broker.grpc.call import Call, Handle, Method
from firearrow.broker.grpc.connection import GrpcConnection
from firearrow.broker.grpc.context import GrpcContext, GrpcParts
from firearrow.broker.grpc.health import Health
from firearrow.broker.grpc.messages import ProtoMessage
from firearrow.broker.grpc.offsets import OffsetMethods
from firearrow.broker.grpc.receiving import ReceivingMethods
from firearrow.broker.grpc.routes import RouteMethods
from firearrow.broker.grpc.sending import SendingMethods
from firearrow.broker.grpc.sessions import SessionMethods
from firearrow.broker.grpc.statuses import GrpcRefusal

SEND_BYTES_MAX = 1 << 30
"""`grpcMaxInboundMessageSize` bounds it as well, and is meant for bodies."""


class GrpcService:
    def __init__(self, parts: GrpcParts) -> None:
        self._context = GrpcContext.of(parts)
        self._methods = {method.name: method for method in methods(self._context)}
        self._health = Health(parts.loop, parts.unready, messages.SERVICES)
        self._others = self._health.methods() | reflection.methods()

    def session(self, connection: Connection, peer: Peer) -> tuple[Http2Session, GrpcConnection]:
        """What a connection speaks from now on, and its calls. Http2Unavailable."""
        calls = GrpcConnection(self._context, self._methods, self._others, peer)
        bytes_max = self._context.config.options.grpc_message_bytes_max
        return Http2Session(connection, calls.accept, bytes_max), calls

    def stop(self) -> None:
        self._health.stop()


def methods(context: GrpcContext) -> list[Method]:
    routes, sending, receiving = RouteMethods(context), SendingMethods(context), ReceivingMethods(context)
    acks, sessions, offsets = AcknowledgingMethods(context), SessionMethods(context), OffsetMethods(context)
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
        "SyncLiteSubscription": _no_lite_topics,
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


def _no_lite_topics(call: Call, request: ProtoMessage) -> None:
    raise GrpcRefusal("NOT_IMPLEMENTED", "this broker has no lite topics yet: use a topic of another type")
