"""PullHoldService: requests that wait for an arrival or their deadline (see long_polling.pxd)."""

import logging

# type: class Peer(Protocol):
# type:     @property
# type:     def closed(self) -> bool: ...
# type:     def close(self) -> None: ...


cdef enum:
    TICK_MS = 100

log = logging.getLogger("firearrow.long_polling")

Queue = tuple[str, int]  # type: TypeAlias
BYTES_MAX = 512 << 20  # type: int
"""Limit of the memory of all held requests, estimated."""
REQUEST_BYTES = 2048  # type: int
"""Estimated memory of one request without long strings."""


def weight_without_body(request):
    # type: (RemotingCommand) -> int
    """Drop the request's body; returns the estimated bytes that the rest takes."""
    request.body = b""
    return REQUEST_BYTES + sum(len(name) + len(text) for name, text in request.ext.items())


# ---- linked lists ----


cdef int link(dict index, key, HeldRequest held, int which) except -1:
    """Append it to the list of that key."""
    cdef HeldList held_list
    found = index.get(key)
    if found is None:
        found = HeldList.__new__(HeldList)
        (<HeldList> found).key = key
        index[key] = found
    held_list = <HeldList> found
    held.held_list[which] = <void *> held_list
    held.previous_held[which] = held_list.last
    held.next_held[which] = NULL
    if held_list.last is NULL:
        held_list.first = <void *> held
    else:
        (<HeldRequest> held_list.last).next_held[which] = <void *> held
    held_list.last = <void *> held
    return 0


cdef int unlink(dict index, HeldRequest held, int which) except -1:
    """Remove it from its list, if any. An empty list is deleted; a peer's stays until its connection
    closes."""
    cdef HeldList held_list
    if held.held_list[which] is NULL:
        return 0
    held_list = <HeldList> held.held_list[which]
    held.held_list[which] = NULL
    if held.previous_held[which] is NULL:
        held_list.first = held.next_held[which]
    else:
        (<HeldRequest> held.previous_held[which]).next_held[which] = held.next_held[which]
    if held.next_held[which] is NULL:
        held_list.last = held.previous_held[which]
    else:
        (<HeldRequest> held.next_held[which]).previous_held[which] = held.previous_held[which]
    if held_list.first is NULL and which != BY_PEER:
        del index[held_list.key]
    return 0


cdef list list_held(dict index, key, int which):
    """The current members of the list; later ones are not included."""
    cdef list found = []
    cdef void *at
    held_list = index.get(key)
    at = NULL if held_list is None else (<HeldList> held_list).first
    while at is not NULL:
        found.append(<HeldRequest> at)
        at = (<HeldRequest> at).next_held[which]
    return found


# ---- waiting requests ----


cdef class HeldRequest:
    """A request that waits."""

    cdef bint has_match(self) except -1:
        """Whether new messages may match it."""
        raise NotImplementedError

    cdef int run_again(self) except -1:
        """Run a last time and answer."""
        raise NotImplementedError


cdef class HeldCallback(HeldRequest):
    """`run_again()` runs the request a last time and replies; `has_match()` is false while no new message
    matches."""

    def __init__(
        self, tuple queue not None, peer not None, int64_t deadline_ms, has_match, run_again,
        Py_ssize_t weight=REQUEST_BYTES,
    ):
        # type: (Queue, Peer, int, Callable[[], bool], Callable[[], object], int) -> None
        self.queue = queue
        self.peer = peer
        self.deadline_ms = deadline_ms
        self.matches = has_match
        self.callback = run_again
        self.weight = weight

    cdef bint has_match(self) except -1:
        return self.matches()

    cdef int run_again(self) except -1:
        self.callback()
        return 0


cdef class PullHoldService:
    """At most `count_max` held requests with `bytes_max` in total, at first `BYTES_MAX`; `add` returns
    False if there is no capacity. An ArrivalNotifier reports arrivals."""

    def __init__(self, loop, Clock clock not None, Py_ssize_t count_max):
        # type: (asyncio.AbstractEventLoop, Clock, int) -> None
        self.loop = loop
        self.clock = clock
        self.count_max, self.bytes_max = count_max, BYTES_MAX
        self.queues, self.ticks, self.peers = {}, {}, {}
        self.waiting = set()

    def __len__(self):
        # type: (...) -> int
        return len(self.waiting)

    cdef bint has_capacity(self, Py_ssize_t weight) except -1:
        return len(self.waiting) < self.count_max and self.bytes + weight <= self.bytes_max

    def add(self, HeldRequest held not None):
        # type: (...) -> bool
        if not self.has_capacity(held.weight):
            return False
        self.hold(held)
        return True

    cdef int hold(self, HeldRequest held) except -1:
        if held.peer not in self.peers:
            held.peer.on_close(self.forget)
        if self.timer is None:
            self.ticked = self.clock.monotonic_ms() // TICK_MS
            self.start_timer()
        self.waiting.add(held)                # owned before anything links to it
        try:
            link(self.queues, held.queue, held, BY_QUEUE)
            link(self.ticks, held.deadline_ms // TICK_MS, held, BY_TICK)
            link(self.peers, held.peer, held, BY_PEER)
        except BaseException:
            self.unlink_all(held)
            raise
        held.waits = True
        self.bytes += held.weight
        return 0

    # ---- what ends the wait ----

    cdef int notify_arriving(self, tuple queue) except -1:
        """The queue has messages that readers could not see before."""
        cdef HeldRequest held
        for held in list_held(self.queues, queue, BY_QUEUE):
            if held.waits:
                self.answer_held(held, True)
        return 0

    cdef int notify_peer(self, peer) except -1:
        """The peer may be sent answers again."""
        cdef HeldRequest held
        if peer in self.peers:
            for held in list_held(self.peers, peer, BY_PEER):
                if held.waits:
                    self.answer_held(held, True)
        return 0

    def tick(self):
        # type: (...) -> None
        """Answer requests whose deadline has passed; the loop's timer calls it."""
        cdef int64_t at
        cdef HeldRequest held
        try:
            for at in range(self.ticked, self.clock.monotonic_ms() // TICK_MS):
                for held in list_held(self.ticks, at, BY_TICK):
                    if held.waits:
                        self.answer_held(held, False)
                self.ticked = at + 1
        finally:
            self.timer = None
            if self.waiting:
                self.start_timer()

    def forget(self, peer):
        # type: (Peer) -> None
        """Drop the requests of a closed connection."""
        cdef HeldRequest held
        for held in list_held(self.peers, peer, BY_PEER):
            self.drop(held)
        self.peers.pop(peer, None)

    def release_all(self):
        # type: (...) -> None
        """Answer all held requests (the broker stops)."""
        cdef HeldRequest held
        for queue in list(self.queues):
            for held in list_held(self.queues, queue, BY_QUEUE):
                if held.waits:
                    self.answer_held(held, False)
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    cdef int answer_held(self, HeldRequest held, bint on_arrival) except -1:
        """Answer it; on an arrival only if it matches. An error of one closes only its connection."""
        try:
            if on_arrival and not held.has_match():
                return 0
            self.drop(held)
            if not held.peer.closed:
                held.run_again()
        except Exception:
            held.peer.close()
            log.exception("a held request of queue %s failed", held.queue)
        return 0

    cdef int drop(self, HeldRequest held) except -1:
        self.bytes -= held.weight
        held.waits = False
        return self.unlink_all(held)

    cdef int unlink_all(self, HeldRequest held) except -1:
        unlink(self.queues, held, BY_QUEUE)
        unlink(self.ticks, held, BY_TICK)
        unlink(self.peers, held, BY_PEER)
        self.waiting.discard(held)
        return 0

    cdef int start_timer(self) except -1:
        self.timer = self.loop.call_later(TICK_MS / 1000.0, self.tick)
        return 0
