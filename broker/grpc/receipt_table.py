"""ReceiptHandleTable: the messages whose invisible time the broker extends for clients of gRPC, and
`receiptHandles.json` (ours).

By client (ReceiptHandleGroup, as in Apache), and by the second in which they are due. The file is a few seconds old
after a kill: its `logOffset` states where the log ended before anything in it, and `receipt_recovery` reads on from
there. Loop thread; `to_json` and `pieces` may run in another one.
"""

import heapq
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator

from firearrow._native.protocol.fastjson import dumps, loads
from firearrow.broker.base.clock import Clock
from firearrow.broker.grpc.receipts import Receipt
from firearrow.broker.grpc.statuses import GrpcRefusal
from firearrow.broker.pop.receipt_handles import normal_topic
from firearrow.broker.tables import json_fields

FILE_NAME = "receiptHandles.json"
AHEAD_MS = 10_000
"""What becomes visible within this time is renewed now."""
HANDLE_BYTES = 1024
"""Of memory that a handle counts for, beside its names; its row of the file is shorter."""
CLIENT_PARTS = 4
"""A client gets at most 1 / CLIENT_PARTS of the memory: messages of others are renewed as well."""
ROWS = 50
"""Of a piece of the file."""

Owner = tuple[str, str]
"""Client id and user."""
Key = tuple[str, str, int, int]
"""Group, topic, queue and queue offset."""


class MessageReceiptHandle:
    """The newest handle of a message, by whatever handle its client knows it. `since_ms`: when the client received it;
    `times`: that it was renewed; `failures`: since the last time; `due_s`: the second in which it is looked at, 0:
    none. `waiting`: what is done once it is renewed; None: no renewal is on its way. `asked`: the requests of its
    client about it that are not answered yet; `is_given_back`: others receive it if they fail."""

    __slots__ = (
        *("asked", "due_s", "failures", "group", "is_given_back", "owner", "receipt", "since_ms", "times"),
        *("waiting", "weight"),
    )

    def __init__(self, owner: Owner, group: str, receipt: Receipt, since_ms: int, times: int = 0) -> None:
        self.owner = owner
        self.group = group
        self.receipt = receipt
        self.since_ms = since_ms
        self.times = times
        self.failures = 0
        self.due_s = 0
        self.waiting: list[Callable[[], None]] | None = None
        self.asked = 0
        self.is_given_back = False
        self.weight = HANDLE_BYTES + len(group) + len(receipt.topic)

    @property
    def key(self) -> Key:
        return self.group, *self.receipt.key

    def row(self) -> list[object]:
        topic = normal_topic(self.receipt.topic, self.group)
        own = [self.receipt.lite_topic] if self.receipt.lite_topic else []
        return [self.group, topic, self.receipt.text, self.since_ms, self.times, *own]

    @staticmethod
    def of(owner: Owner, row: object) -> "MessageReceiptHandle":
        """ValueError."""
        fields = json_fields.items(row, "handles")
        if len(fields) < 5 or not all(isinstance(text, str) for text in fields[:3]):
            raise ValueError(f"handles has a row of {len(fields)} values")
        group, topic, text = sys.intern(fields[0]), sys.intern(fields[1]), fields[2]
        since_ms, times = (json_fields.whole(value, "handles") for value in fields[3:5])
        if not 0 <= since_ms <= json_fields.LONG_MAX or not 0 <= times <= json_fields.INT_MAX:
            raise ValueError(f"handles has a time {since_ms} or a count {times} that cannot be")
        try:
            receipt = Receipt.of(text, topic, group, str(fields[5]) if len(fields) > 5 else "")
        except GrpcRefusal as refusal:
            raise ValueError(refusal.text) from None
        return MessageReceiptHandle(owner, group, receipt, since_ms, times)


class ReceiptHandleGroup:
    """The handles of a client. `counts`: how many are of a group. `bytes`: of memory that they and the client count
    for."""

    __slots__ = ("bytes", "counts", "handles", "owner", "weight")

    def __init__(self, owner: Owner) -> None:
        self.owner = owner
        self.handles: dict[Key, MessageReceiptHandle] = {}
        self.counts: Counter[str] = Counter()
        self.weight = self.bytes = HANDLE_BYTES + len(dumps(list(owner)))

    def pieces(self) -> Iterator[bytes]:
        """Objects of the file."""
        handles = list(self.handles.values())
        for at in range(0, len(handles), ROWS):
            rows = [handle.row() for handle in handles[at : at + ROWS]]
            yield dumps({"clientId": self.owner[0], "handles": rows, "user": self.owner[1]})


class ReceiptHandleTable:
    """`bytes_max`: further handles are not taken, and of one client a part of it: their messages become visible when
    their time ends, as without renewal. `dropped`: how many were not. `log_offset`: for the file; the manager sets
    it."""

    def __init__(self, clock: Clock, changed: Callable[[], None] = lambda: None) -> None:
        self._clock = clock
        self._changed = changed
        self._clients: dict[Owner, ReceiptHandleGroup] = {}
        self._due: dict[int, dict[MessageReceiptHandle, None]] = {}
        self._seconds: list[int] = []
        """A heap of the keys of `_due`."""
        self._count = 0
        self.bytes = 0
        self.bytes_max = sys.maxsize
        self.dropped = 0
        self.log_offset = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[MessageReceiptHandle]:
        return (handle for client in self._clients.values() for handle in client.handles.values())

    @property
    def owners(self) -> Collection[Owner]:
        return self._clients.keys()

    def find(self, owner: Owner, key: Key) -> MessageReceiptHandle | None:
        client = self._clients.get(owner)
        return None if client is None else client.handles.get(key)

    def count(self, owner: Owner, group: str) -> int:
        """How many messages of the group the client has."""
        client = self._clients.get(owner)
        return 0 if client is None else client.counts[group]

    def add(self, handle: MessageReceiptHandle) -> bool:
        """In place of an older one of the message. False: there is no memory for it."""
        is_taken = self._add(handle)
        if is_taken:
            self._changed()
        else:
            self.dropped += 1
        return is_taken

    def _add(self, handle: MessageReceiptHandle) -> bool:
        client, key = self._clients.get(handle.owner) or ReceiptHandleGroup(handle.owner), handle.key
        before = client.handles.get(key)
        more = handle.weight - (0 if before is None else before.weight)
        needed = more if client.handles else more + client.weight
        if self.bytes + needed > self.bytes_max or client.bytes + more > self.bytes_max // CLIENT_PARTS:
            return False
        if not client.handles:
            self._clients[handle.owner] = client
            self.bytes += client.weight
        if before is not None:
            self._forget(client, before)
        client.handles[key] = handle
        client.counts[handle.group] += 1
        client.bytes += handle.weight
        self._count += 1
        self.bytes += handle.weight
        self._schedule(handle, 0)
        return True

    def remove(self, handle: MessageReceiptHandle) -> None:
        client = self._clients.get(handle.owner)
        if client is None or client.handles.get(handle.key) is not handle:
            return
        self._forget(client, client.handles.pop(handle.key))
        if not client.handles:
            self._drop(client)
        self._changed()

    def take(self, owner: Owner) -> list[MessageReceiptHandle]:
        """The handles of a client that has ended; they are removed."""
        client = self._clients.get(owner)
        if client is None:
            return []
        handles = list(client.handles.values())
        for handle in handles:
            self._forget(client, handle)
        self._drop(client)
        self._changed()
        return handles

    def _forget(self, client: ReceiptHandleGroup, handle: MessageReceiptHandle) -> None:
        client.bytes -= handle.weight
        self._count -= 1
        client.counts[handle.group] -= 1
        self.bytes -= handle.weight
        self._not_due(handle)

    def _drop(self, client: ReceiptHandleGroup) -> None:
        del self._clients[client.owner]
        self.bytes -= client.weight

    # ---- by time ----

    def set_due(self, handle: MessageReceiptHandle, at_ms: int = 0) -> None:
        """It is looked at then, else before its message becomes visible. It was changed."""
        self._schedule(handle, at_ms)
        self._changed()

    def _schedule(self, handle: MessageReceiptHandle, at_ms: int) -> None:
        self._not_due(handle)
        second = max(at_ms or handle.receipt.visible_ms - AHEAD_MS, 1000) // 1000
        if second not in self._due:
            self._due[second] = {}
            heapq.heappush(self._seconds, second)
        self._due[second][handle] = None
        handle.due_s = second

    def due(self, count: int) -> list[MessageReceiptHandle]:
        """At most `count` that are to be looked at now; `set_due` or `remove` them."""
        found: list[MessageReceiptHandle] = []
        now_s = self._clock.now_ms() // 1000
        while self._seconds and self._seconds[0] <= now_s and len(found) < count:
            handles = self._due[self._seconds[0]]
            while handles and len(found) < count:
                handle = handles.popitem()[0]
                handle.due_s = 0
                found.append(handle)
            if not handles:
                del self._due[heapq.heappop(self._seconds)]
        return found

    @property
    def is_due(self) -> bool:
        """Whether `due` may return any."""
        return bool(self._seconds) and self._seconds[0] <= self._clock.now_ms() // 1000

    def _not_due(self, handle: MessageReceiptHandle) -> None:
        """Its second stays in the heap until it has passed."""
        if handle.due_s:
            del self._due[handle.due_s][handle]
            handle.due_s = 0

    # ---- the file ----

    def to_json(self) -> bytes:
        return b"".join(self.pieces())

    def pieces(self) -> Iterator[bytes]:
        """The file's text, in pieces of a fraction of a millisecond."""
        yield b'{"logOffset":%d,"clients":[' % self.log_offset
        separator = b""
        for client in list(self._clients.values()):
            for piece in client.pieces():
                yield separator + piece
                separator = b","
        yield b"]}"

    def load(self, text: bytes) -> None:
        """Replace the table by the file's. ValueError: nothing changed."""
        of = json_fields.members(loads(text), FILE_NAME)
        log_offset = json_fields.number(of, "logOffset", 0, high=json_fields.LONG_MAX)
        found: list[MessageReceiptHandle] = []
        for value in json_fields.items(of.get("clients"), "clients"):
            client = json_fields.members(value, "clients")
            owner = json_fields.text(client, "clientId"), json_fields.text(client, "user", "")
            rows = json_fields.items(client.get("handles"), "handles")
            found += [MessageReceiptHandle.of(owner, row) for row in rows]
        for table in (self._clients, self._due, self._seconds):
            table.clear()
        self._count = self.bytes = 0
        self.log_offset = log_offset
        for handle in found:
            self._add(handle)
