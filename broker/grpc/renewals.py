"""ReceiptHandleManager: extends the invisible time of messages that push consumers of gRPC process, as long as they
live.

Such a consumer receives with `auto_renew`: a message becomes visible again only when its consumer has ended, not when a
listener takes long. Each renewal gives the message a new receipt handle, which the broker uses in place of the one that
the client has. A client that ends gives its messages back at once; those of a client that has lost its connection, or
of one that had them when the broker stopped, wait for it for a while. Loop thread, in slices.
"""

import asyncio
import functools
import itertools
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import NamedTuple, Protocol

from firearrow._native.store.message_store import MessageStore
from firearrow._native.wire.codes import PROTOCOL_VERSION, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base.clock import Clock
from firearrow.broker.base.peer import Address, Peer
from firearrow.broker.grpc.receipt_recovery import INVISIBLE_MS, ReceiptRecovery
from firearrow.broker.grpc.receipt_table import Key, MessageReceiptHandle, Owner, ReceiptHandleTable
from firearrow.broker.grpc.receipts import Receipt
from firearrow.broker.tables.offsets import ConsumerOffsets

log = logging.getLogger("firearrow.grpc")

OPAQUE_MAX = 0x7FFFFFFF
Receive = Callable[[RemotingCommand, Peer], None]
Then = Callable[[RemotingCommand], None]
PERIOD_S = 1.0
RETRY_MS = 5000
"""After a renewal that failed, or that a request of the client was before."""
RENEW_MS_MAX = 3 * 3_600_000
"""From the first receipt."""
FAILURES_MAX = 3
LOST_MS = 30_000
"""How long the messages of a client that has lost its connection wait for it."""
GIVE_BACK_MS = 1000
SLICE = 64
"""Renewals in one turn of the loop."""
WARN_MS = 60_000
MARK_MS = 5000
"""By then what the log has of a message is in the table: an answer waits no longer for the disk."""


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


class RenewedClient(Protocol):
    """`user`: that it logs in as; empty: none."""

    client_id: str
    user: str


class RenewalParts(NamedTuple):
    """`works()`: this broker may change messages: it is a master that has taken over."""

    loop: asyncio.AbstractEventLoop
    clock: Clock
    store: MessageStore
    offsets: ConsumerOffsets
    table: ReceiptHandleTable
    requests: BackgroundPeer
    revive_topic: str
    works: Callable[[], bool]


class ReceiptHandleManager:
    """`is_online(client id, user)`: whether the client may still acknowledge."""

    def __init__(self, parts: RenewalParts) -> None:
        self._loop, self._clock, self._store = parts.loop, parts.clock, parts.store
        self._table, self._requests, self._works = parts.table, parts.requests, parts.works
        self.is_online: Callable[[str, str], bool] = lambda client_id, user: False
        recovery = ReceiptRecovery(parts.store, parts.offsets, parts.table, parts.revive_topic)
        self._recovery: Iterator[None] | None = recovery.run() if parts.table else None
        self._lost_ms: dict[Owner, int] = dict.fromkeys(parts.table.owners, 0)
        """Since when clients are not online, in this order."""
        self._has_begun = self._is_stopped = False
        self._given_back: deque[MessageReceiptHandle] = deque()
        self._mark, self._marked_ms, self._warned_ms = 0, 0, 0
        self._timer: asyncio.Handle | None = None
        if parts.table:
            self._arm()

    def __len__(self) -> int:
        return len(self._table)

    # ---- the clients ----

    def begin(self, client: RenewedClient, group: str, receipt: Receipt) -> None:
        """Renew a message that the client has received."""
        owner, now_ms = _owner(client), self._clock.now_ms()
        if not self._table:
            self._mark = self._table.log_offset = self._store.written
        if not self._table.add(MessageReceiptHandle(owner, group, receipt, now_ms)):
            return self._warn(now_ms)
        if not self.is_online(*owner):
            self._lost_ms.setdefault(owner, now_ms)
        return self._arm()

    def _warn(self, now_ms: int) -> None:
        if now_ms - self._warned_ms >= WARN_MS:
            self._warned_ms = now_ms
            log.warning(
                "%d messages are in progress at clients of gRPC, as many as fit into the memory for them: further ones "
                "come again after a minute; let consumers cache fewer messages, or grant more memory",
                len(self._table),
            )

    @property
    def owners(self) -> Collection[Owner]:
        """The clients for whom messages are renewed, also later."""
        return self._table.owners

    def find(self, owner: Owner, key: Key) -> MessageReceiptHandle | None:
        """The newest handle of the message, if it is renewed."""
        return self._table.find(owner, key)

    def newest(self, client: RenewedClient, group: str, receipt: Receipt) -> Receipt:
        """The newest receipt of the message, if it is renewed."""
        handle = self._table.find(_owner(client), (group, *receipt.key))
        return receipt if handle is None else handle.receipt

    def when_settled(
        self, client: RenewedClient, group: str, receipt: Receipt, then: Callable[[], None]
    ) -> None:
        """Call it once no renewal of the message is on its way, at once if none is: the newest handle is not known
        before, and an older one would leave the renewed message as it is."""
        handle = self._table.find(_owner(client), (group, *receipt.key))
        _when_settled(handle, then)

    def count(self, client: RenewedClient, group: str) -> int:
        """How many messages of the group are renewed for the client."""
        return self._table.count(_owner(client), group)

    def pause(self, client: RenewedClient, group: str, receipt: Receipt) -> MessageReceiptHandle | None:
        """The client makes a request about the message, which is not renewed before it is answered: `resume`."""
        handle = self._table.find(_owner(client), (group, *receipt.key))
        if handle is not None:
            handle.asked += 1
        return handle

    def resume(self, handle: MessageReceiptHandle | None, is_done: bool) -> None:
        """The request was answered. `is_done`: the client is done with the message."""
        if handle is not None:
            handle.asked -= 1
            if is_done:
                handle.is_given_back = False
                self._table.remove(handle)
            elif handle.is_given_back and not handle.asked:
                self._given_back.append(handle)
                self._run_soon()

    def lost(self, client: RenewedClient) -> None:
        """The client has no connection any more; it may come back."""
        owner = _owner(client)
        self._lost_ms.pop(owner, None)
        if owner in self._table.owners:
            self._lost_ms[owner] = self._clock.now_ms()

    def give_back(self, client: RenewedClient) -> None:
        """The client has ended: others may receive its messages."""
        owner = _owner(client)
        self._lost_ms.pop(owner, None)
        self._take(owner)
        if self._given_back:
            self._run_soon()

    def _take(self, owner: Owner) -> None:
        """Return what the client holds, except messages whose acknowledgement is not answered yet."""
        for handle in self._table.take(owner):
            if handle.asked:
                handle.is_given_back = True
            else:
                self._given_back.append(handle)

    def return_messages(self, client: RenewedClient, group: str, receipts: Iterable[Receipt]) -> None:
        """The client does not get messages that were taken for it: others may receive them."""
        owner, now_ms = _owner(client), self._clock.now_ms()
        for receipt in receipts:
            handle = self._table.find(owner, (group, *receipt.key))
            if handle is None:
                handle = MessageReceiptHandle(owner, group, receipt, now_ms)
            else:
                self._table.remove(handle)
            self._given_back.append(handle)
        if self._given_back:
            self._run_soon()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        self._is_stopped = True

    # ---- in slices ----

    def _arm(self) -> None:
        if self._timer is None and not self._is_stopped:
            self._timer = self._loop.call_later(PERIOD_S, self._run)

    def _run(self) -> None:
        self._timer = None
        if self._works() and self._slice():
            self._run_soon()
        elif self._table or self._given_back:
            self._arm()

    def _run_soon(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if self._is_stopped else self._loop.call_soon(self._run)

    def _slice(self) -> bool:
        """Whether there is more to be done at once."""
        if not self._has_begun:  # clients have had no chance to come back before
            self._has_begun = True
            self._lost_ms = dict.fromkeys(self._lost_ms, self._clock.now_ms())
        if self._recovery is not None:
            if len(list(itertools.islice(self._recovery, SLICE))) == SLICE:
                return True
            self._recovery = None
            self._mark = self._table.log_offset
        self._note_log()
        self._look_at_lost()
        count = min(len(self._given_back), SLICE)
        for _ in range(count):
            handle = self._given_back.popleft()
            _when_settled(handle, functools.partial(self._give_back, handle))
        for handle in self._table.due(SLICE - count):
            self._renew(handle)
        return bool(self._given_back) or self._table.is_due

    def _give_back(self, handle: MessageReceiptHandle) -> None:
        self._requests.make(handle.receipt.change(handle.group, GIVE_BACK_MS), lambda answer: None)

    def _note_log(self) -> None:
        """The log before `log_offset` has nothing that the table lacks."""
        now_ms = self._clock.now_ms()
        if now_ms - self._marked_ms >= MARK_MS:
            self._table.log_offset, self._mark, self._marked_ms = self._mark, self._store.written, now_ms

    def _look_at_lost(self) -> None:
        now_ms = self._clock.now_ms()
        for owner, since_ms in list(itertools.islice(self._lost_ms.items(), SLICE)):
            if now_ms - since_ms < LOST_MS:
                return
            del self._lost_ms[owner]
            if not self.is_online(*owner):
                self._take(owner)

    def _renew(self, handle: MessageReceiptHandle) -> None:
        now_ms = self._clock.now_ms()
        is_visible = handle.receipt.visible_ms <= now_ms
        if is_visible or now_ms - handle.since_ms >= RENEW_MS_MAX or handle.failures >= FAILURES_MAX:
            return self._table.remove(handle)
        if handle.asked:
            return self._table.set_due(handle, now_ms + RETRY_MS)
        handle.waiting = []

        def done(answer: RemotingCommand) -> None:
            waiting, handle.waiting = handle.waiting or (), None
            if answer.code == ResponseCode.SUCCESS:
                handle.receipt = handle.receipt.changed(answer)
                handle.times, handle.failures = handle.times + 1, 0
            else:
                handle.failures += 1
            if self._table.find(handle.owner, handle.key) is handle:
                self._table.set_due(handle, 0 if handle.failures == 0 else self._clock.now_ms() + RETRY_MS)
            for then in waiting:
                then()

        invisible_ms = INVISIBLE_MS[min(handle.times, len(INVISIBLE_MS) - 1)]
        return self._requests.make(handle.receipt.change(handle.group, invisible_ms), done)


def _owner(client: RenewedClient) -> Owner:
    return client.client_id, client.user


def _when_settled(handle: MessageReceiptHandle | None, then: Callable[[], None]) -> None:
    if handle is None or handle.waiting is None:
        then()
    else:
        handle.waiting.append(then)
