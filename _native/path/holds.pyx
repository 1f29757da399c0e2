"""Holds: requests that wait for an arrival or their deadline (see holds.pxd)."""

import logging

cdef enum:
    TICK_MS = 100

log = logging.getLogger("firearrow.holds")

Queue = tuple[str, int]
BYTES_MAX = 512 << 20
REQUEST_BYTES = 2048

cdef Py_ssize_t ROOM = BYTES_MAX


def lightened(request):
    request.body = b""
    return REQUEST_BYTES + sum(len(name) + len(text) for name, text in request.ext.items())


# ---- linked lists ----


cdef int stand(dict index, key, Held held, int which) except -1:
    """Append it to the list of that key."""
    cdef Line line
    found = index.get(key)
    if found is None:
        found = Line.__new__(Line)
        (<Line> found).key = key
        index[key] = found
    line = <Line> found
    held.line[which] = <void *> line
    held.before[which] = line.last
    held.behind[which] = NULL
    if line.last is NULL:
        line.first = <void *> held
    else:
        (<Held> line.last).behind[which] = <void *> held
    line.last = <void *> held
    return 0


cdef int leave(dict index, Held held, int which) except -1:
    """Remove it from its list, if any. An empty list is deleted; a peer's stays until its connection
    closes."""
    cdef Line line
    if held.line[which] is NULL:
        return 0
    line = <Line> held.line[which]
    held.line[which] = NULL
    if held.before[which] is NULL:
        line.first = held.behind[which]
    else:
        (<Held> held.before[which]).behind[which] = held.behind[which]
    if held.behind[which] is NULL:
        line.last = held.before[which]
    else:
        (<Held> held.behind[which]).before[which] = held.before[which]
    if line.first is NULL and which != OF_PEER:
        del index[line.key]
    return 0


cdef list standing(dict index, key, int which):
    """The current members of the list; later ones are not included."""
    cdef list found = []
    cdef void *at
    line = index.get(key)
    at = NULL if line is None else (<Line> line).first
    while at is not NULL:
        found.append(<Held> at)
        at = (<Held> at).behind[which]
    return found


# ---- waiting requests ----


cdef class Held:
    cdef bint wants(self) except -1:
        """Whether new messages may match it."""
        raise NotImplementedError

    cdef int again(self) except -1:
        """Run a last time and answer."""
        raise NotImplementedError


cdef class HeldCall(Held):
    def __init__(
        self, tuple queue not None, peer not None, int64_t deadline_ms, wants, again,
        Py_ssize_t weight=REQUEST_BYTES,
    ):
        self.queue = queue
        self.peer = peer
        self.deadline_ms = deadline_ms
        self.asked = wants
        self.called = again
        self.weight = weight

    cdef bint wants(self) except -1:
        return self.asked()

    cdef int again(self) except -1:
        self.called()
        return 0


cdef class Holds:
    def __init__(self, loop, Clock clock not None, Py_ssize_t most):
        self.loop = loop
        self.clock = clock
        self.most = most
        self.queues, self.ticks, self.peers = {}, {}, {}
        self.waiting = set()

    def __len__(self):
        return len(self.waiting)

    cdef bint has_room(self, Py_ssize_t weight) except -1:
        return len(self.waiting) < self.most and self.bytes + weight <= ROOM

    def add(self, Held held not None):
        if not self.has_room(held.weight):
            return False
        self.enter(held)
        return True

    cdef int enter(self, Held held) except -1:
        if held.peer not in self.peers:
            held.peer.on_close(self.forget)
        if self.timer is None:
            self.ticked = self.clock.monotonic_ms() // TICK_MS
            self.watch()
        self.waiting.add(held)                # owned before anything links to it
        try:
            stand(self.queues, held.queue, held, OF_QUEUE)
            stand(self.ticks, held.deadline_ms // TICK_MS, held, OF_TICK)
            stand(self.peers, held.peer, held, OF_PEER)
        except BaseException:
            self.part_with(held)
            raise
        held.waits = True
        self.bytes += held.weight
        return 0

    # ---- what ends the wait ----

    cdef int hear(self, tuple queue) except -1:
        """The queue has messages that readers could not see before."""
        cdef Held held
        for held in standing(self.queues, queue, OF_QUEUE):
            if held.waits:
                self.attend(held, True)
        return 0

    def tick(self):
        cdef int64_t at
        cdef Held held
        try:
            for at in range(self.ticked, self.clock.monotonic_ms() // TICK_MS):
                for held in standing(self.ticks, at, OF_TICK):
                    if held.waits:
                        self.attend(held, False)
                self.ticked = at + 1
        finally:
            self.timer = None
            if self.waiting:
                self.watch()

    def forget(self, peer):
        cdef Held held
        for held in standing(self.peers, peer, OF_PEER):
            self.drop(held)
        self.peers.pop(peer, None)

    def release_all(self):
        cdef Held held
        for queue in list(self.queues):
            for held in standing(self.queues, queue, OF_QUEUE):
                if held.waits:
                    self.attend(held, False)
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    cdef int attend(self, Held held, bint is_news) except -1:
        """Answer it; on an arrival only if it matches. An error of one closes only its connection."""
        try:
            if is_news and not held.wants():
                return 0
            self.drop(held)
            if not held.peer.closed:
                held.again()
        except Exception:
            held.peer.close()
            log.exception("a held request of queue %s failed", held.queue)
        return 0

    cdef int drop(self, Held held) except -1:
        self.bytes -= held.weight
        held.waits = False
        return self.part_with(held)

    cdef int part_with(self, Held held) except -1:
        leave(self.queues, held, OF_QUEUE)
        leave(self.ticks, held, OF_TICK)
        leave(self.peers, held, OF_PEER)
        self.waiting.discard(held)
        return 0

    cdef int watch(self) except -1:
        self.timer = self.loop.call_later(TICK_MS / 1000.0, self.tick)
        return 0
