"""Where clients of gRPC are not served: each of their calls is UNIMPLEMENTED, with the reason. Loop thread.

Apart from the service, as that needs `protobuf`, and a name server has none.
"""

from firearrow._native.http2.grpc_stream import GrpcStream
from firearrow._native.http2.session import Http2Session, Http2Unavailable
from firearrow._native.wire.connection import Connection

__all__ = ["Http2Unavailable", "refusing_session"]

UNIMPLEMENTED = 12
MESSAGE_BYTES_MAX = 1 << 16


def refusing_session(connection: Connection, reason: str) -> Http2Session:
    """What such a connection speaks. Http2Unavailable: not even that."""

    def refuse(stream: GrpcStream) -> None:
        stream.finish(UNIMPLEMENTED, reason)

    return Http2Session(connection, refuse, MESSAGE_BYTES_MAX)
