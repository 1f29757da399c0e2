"""Channel: one connection to one broker or name server, and the signatures of requests (ACL).

It numbers requests, matches answers to them and passes on the peer's own requests. The answer to a request
that no caller waits for is dropped. The connection stays open when a request times out, because other
requests use it, unless nothing came on it since the request was sent: then it is dead, and is closed. Loop
thread.

A signature is added last, over all other fields and the body.
"""

import asyncio
import base64
from collections.abc import Callable

from firearrow._native.wire.command import RemotingCommand
from firearrow._native.wire.pending_calls import Failure, PendingCalls
from firearrow.client.base.errors import ClientError, ConnectionLost, RequestTimeout, TooManyRequests
from firearrow.client.base.message import java_order
from firearrow.client.base.options import Credentials
from firearrow.client.remoting.tls import tls_fault

ERRORS: dict[Failure, type[ClientError]] = {
    Failure.CLOSED: ConnectionLost,
    Failure.LOST: ConnectionLost,
    Failure.LATE: RequestTimeout,
    Failure.FULL: TooManyRequests,
}
AT_ONCE_S = 1.0
"""A connection that is lost later was not refused for its first bytes."""


class Channel(PendingCalls, asyncio.BufferedProtocol):
    """A call raises ConnectionLost, RequestTimeout or TooManyRequests."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        address: str,
        request_received: Callable[[RemotingCommand, "Channel"], None],
        left: Callable[["Channel"], None],
        pending_max: int,
        *,
        tls: bool = False,
    ) -> None:
        super().__init__(loop, pending_max=pending_max)
        self.address = address
        self._request_received = request_received
        self._left = left
        self._tls = tls
        self._loop, self._made_s = loop, loop.time()
        self.lost_reason = f"{address}: the connection was lost"

    def received(self, command: RemotingCommand) -> None:
        self._request_received(command, self)

    def left(self) -> None:
        self._left(self)

    def silent(self, seconds: float) -> None:
        self.lost_reason = f"{self.address}: requests had no answer and nothing came for {seconds:.1f} s"
        self._left(self)

    @property
    def unsent_bytes(self) -> int:
        """What the kernel has not taken yet."""
        return int(self.transport.get_write_buffer_size())

    def failure(self, kind: Failure, reason: Exception | None = None) -> ClientError:
        why = ""
        if reason is not None:
            why = f": {tls_fault(reason)}"
        elif kind is Failure.LOST and not self._tls and self._refused_at_once():
            why = (
                " before any answer; if the server accepts TLS only, set ClientOptions.tls, "
                "for commands: firearrow context add NAME --authority FILE"
            )
        return ERRORS[kind](f"{self.address}: {kind.value}{why}")

    def _refused_at_once(self) -> bool:
        return not self.received_frames and self._loop.time() - self._made_s < AT_ONCE_S

    def broken(self, fault: str) -> None:
        self.lost_reason = f"{self.address}: {fault}"


def sign(command: RemotingCommand, credentials: Credentials) -> None:
    """Base64 of HMAC-SHA1 over the values of all fields in the order of their names, then the body."""
    import hmac  # noqa: PLC0415 (brings hashlib, and most requests are not signed)

    ext = command.ext
    ext.pop("Signature", None)
    ext["AccessKey"] = credentials.access_key
    if credentials.security_token is not None:
        ext["SecurityToken"] = credentials.security_token
    content = "".join(ext[name] for name in sorted(ext, key=java_order)).encode() + command.body
    digest = hmac.digest(credentials.secret_key.encode(), content, "sha1")
    ext["Signature"] = base64.b64encode(digest).decode()
