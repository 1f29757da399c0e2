"""Renewals: extends the invisible time of messages that push consumers of gRPC process, as long as they live.

Such a consumer receives with `auto_renew`: a message becomes visible again only when its consumer has ended, not when a
listener takes long. Each renewal gives the message a new receipt handle, which the broker uses in place of the one that
the client has. A client that ends gives its messages back at once; those of a client that has lost its
connection wait for it for a while. Apache: ReceiptHandleManager. Loop thread.
"""

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import dataclass

from firearrow._native.wire.codes import PROTOCOL_VERSION, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base.clock import Clock
from firearrow.broker.base.peer import Address, Peer
from firearrow.broker.grpc.client import GrpcClient, GrpcClients
from firearrow.broker.grpc.receipts import Receipt

OPAQUE_MAX = 0x7FFFFFFF
Receive = Callable[[RemotingCommand, Peer], None]
Then = Callable[[RemotingCommand], None]
PERIOD_S = 5.0
AHEAD_MS = 10_000
"""What becomes visible within this time is renewed now."""
INVISIBLE_MS = (60_000, 180_000, 300_000, 600_000, 1_800_000, 3_600_000)
"""By the number of renewals."""
RENEW_MS_MAX = 3 * 3_600_000
"""From the first receipt."""
FAILURES_MAX = 3
LOST_MS = 30_000
"""How long the messages of a client that has lost its connection wait for it."""
GIVE_BACK_MS = 1000
RECEIPTS_MAX = 1_000_000

Owner = tuple[str, str]
Key = tuple[str, str, int, int]
"""Group, topic, queue and queue offset."""


class BackgroundPeer:
    """The peer of requests that the broker makes for clients by itself. They are not checked: the client was let
    through when it got what they are about. `local`: the broker's address."""

    closed = False
    write_paused = False
    number = 0

    def __init__(self, dispatch: Receive, local: Address) -> None:
        self.remote: Address = ("127.0.0.1", 0)
        self.local = local
        self._dispatch = dispatch
        self._opaques = itertools.count(1)
        self._waiting: dict[int, Then] = {}

    def make(self, request: RemotingCommand, then: Then) -> None:
        """Make a request; `then(answer)`."""
        request.opaque = next(self._opaques) & OPAQUE_MAX
        request.version = PROTOCOL_VERSION
        self._waiting[request.opaque] = then
        self._dispatch(request, self)

    def reply(self, answer: RemotingCommand) -> None:
        then = self._waiting.pop(answer.opaque, None)
        if then is not None:
            then(answer)

    def oneway(self, command: RemotingCommand) -> None:
        pass

    async def ask(self, command: RemotingCommand, timeout_s: float) -> RemotingCommand:
        raise ConnectionError("the broker itself answers no requests")

    def on_close(self, callback: Callable[[Peer], None]) -> None:
        pass

    def close(self) -> None:
        pass

    def throttle(self, delay_s: float) -> None:
        pass


@dataclass(slots=True)
class _Renewed:
    receipt: Receipt
    group: str
    since_ms: int
    times: int = 0
    failures: int = 0
    is_pending: bool = False


class Renewals:
    def __init__(
        self, loop: asyncio.AbstractEventLoop, clock: Clock, clients: GrpcClients, requests: BackgroundPeer
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._clients = clients
        self._requests = requests
        self._by_owner: dict[Owner, dict[Key, _Renewed]] = {}
        self._lost_ms: dict[Owner, int] = {}
        self._count = 0
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return self._count

    def begin(self, client: GrpcClient, group: str, receipt: Receipt) -> None:
        """Renew a message that the client has received."""
        if self._count >= RECEIPTS_MAX:
            return
        renewed = self._by_owner.setdefault(_owner(client), {})
        key = (group, *receipt.key)
        self._count += key not in renewed
        renewed[key] = _Renewed(receipt, group, self._clock.now_ms())
        if self._timer is None:
            self._timer = self._loop.call_later(PERIOD_S, self._look)

    def newest(self, client: GrpcClient, group: str, receipt: Receipt) -> Receipt:
        """The newest receipt of the message, if it is renewed."""
        renewed = self._by_owner.get(_owner(client), {}).get((group, *receipt.key))
        return receipt if renewed is None else renewed.receipt

    def end(self, client: GrpcClient, group: str, receipt: Receipt) -> None:
        """The client is done with the message."""
        self._drop(_owner(client), (group, *receipt.key))

    def give_back(self, client: GrpcClient) -> None:
        """The client has ended: others may receive its messages."""
        self._give_back(_owner(client))

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _drop(self, owner: Owner, key: Key) -> None:
        renewed = self._by_owner.get(owner)
        if renewed is not None and renewed.pop(key, None) is not None:
            self._count -= 1
            if not renewed:
                del self._by_owner[owner]
                self._lost_ms.pop(owner, None)

    def _give_back(self, owner: Owner) -> None:
        renewed = self._by_owner.pop(owner, {})
        self._count -= len(renewed)
        self._lost_ms.pop(owner, None)
        for each in renewed.values():
            self._requests.make(each.receipt.change(each.group, GIVE_BACK_MS), lambda answer: None)

    def _look(self) -> None:
        now_ms = self._clock.now_ms()
        self._timer = None
        for owner in list(self._by_owner):
            if self._clients.is_online(*owner):
                self._lost_ms.pop(owner, None)
            elif now_ms - self._lost_ms.setdefault(owner, now_ms) >= LOST_MS:
                self._give_back(owner)
                continue
            for key, renewed in list(self._by_owner[owner].items()):
                self._look_at(owner, key, renewed, now_ms)
        if self._by_owner and self._timer is None:
            self._timer = self._loop.call_later(PERIOD_S, self._look)

    def _look_at(self, owner: Owner, key: Key, renewed: _Renewed, now_ms: int) -> None:
        if renewed.is_pending or renewed.receipt.visible_ms - now_ms > AHEAD_MS:
            return
        if now_ms - renewed.since_ms >= RENEW_MS_MAX or renewed.failures >= FAILURES_MAX:
            return self._drop(owner, key)
        renewed.is_pending = True

        def done(answer: RemotingCommand) -> None:
            renewed.is_pending = False
            if answer.code == ResponseCode.SUCCESS:
                renewed.receipt = renewed.receipt.changed(answer)
                renewed.times, renewed.failures = renewed.times + 1, 0
            else:
                renewed.failures += 1

        invisible_ms = INVISIBLE_MS[min(renewed.times, len(INVISIBLE_MS) - 1)]
        return self._requests.make(renewed.receipt.change(renewed.group, invisible_ms), done)


def _owner(client: GrpcClient) -> Owner:
    return client.client_id, client.user
