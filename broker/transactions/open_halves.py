"""Which half messages are open, by their offset in the half queue. Loop thread.

In memory only: one byte per half message from the first open one on. A half message that is checked is
appended to the queue again: its decision may refer to any of its copies, and ends the newest.
"""

from collections import deque

OPEN, ENDING, ENDED = 0, 1, 2
COPIES_MAX = 100_000
"""Older copies that are remembered; a decision for a forgotten one is ignored, and the message is checked
again.
"""
OPS_TOGETHER = 64


class OpenHalfMessages:
    """`base`: all half messages before it have ended.

    `op_base`: all op messages before it refer only to those.
    """

    def __init__(self, base: int, op_base: int) -> None:
        self.base = base
        self.op_base = op_base
        self._states = bytearray()
        self._newest: dict[int, int] = {}
        self._older: dict[int, list[int]] = {}
        self._ops: deque[tuple[int, int, int]] = deque()
        self._early: set[int] = set()

    def load(self, op_queue_offset: int, half_offsets: list[int]) -> None:
        """Apply an op message of the store; they are loaded in queue order."""
        self._early.update(offset for offset in half_offsets if offset < self.base)
        for offset in half_offsets:
            if offset >= self.base:
                self._set(offset, ENDED)
        self.note_op(op_queue_offset, half_offsets)

    def note_op(self, op_queue_offset: int, half_offsets: list[int]) -> None:
        """Record a stored op message: `op_base` moves past it once its half messages are before `base`."""
        highest = max(half_offsets, default=-1)
        if self._ops and self._ops[-1][1] - self._ops[-1][0] < OPS_TOGETHER:
            first, _, previous = self._ops.pop()
            self._ops.append((first, op_queue_offset + 1, max(previous, highest)))
        else:
            self._ops.append((op_queue_offset, op_queue_offset + 1, highest))
        self._advance()

    def newest(self, half_offset: int) -> int:
        """The offset of the newest copy of a half message."""
        return self._newest.get(half_offset, half_offset)

    def is_open(self, half_offset: int) -> bool:
        at = half_offset - self.base
        return at >= 0 and (at >= len(self._states) or self._states[at] == OPEN)

    def was_ended_early(self, half_offset: int) -> bool:
        """Whether an op message of Apache's broker ended it after it had been copied."""
        return half_offset in self._early

    def begin(self, half_offset: int) -> None:
        """Its decision is staged."""
        self._set(half_offset, ENDING)

    def reopen(self, half_offset: int) -> None:
        """Its decision was not stored."""
        if half_offset >= self.base:
            self._set(half_offset, OPEN)

    def end(self, half_offsets: list[int]) -> None:
        """Their decisions are stored."""
        for offset in half_offsets:
            self._set(offset, ENDED)
            for older in self._older.pop(offset, ()):
                self._newest.pop(older, None)
        self._advance()

    def copy(self, half_offset: int, newest: int) -> None:
        """It was copied to offset `newest`; the caller ends it when the copy is stored."""
        older = [*self._older.pop(half_offset, ()), half_offset]
        self._older[newest] = older
        for offset in older:
            self._newest[offset] = newest
        while len(self._newest) > COPIES_MAX:
            oldest = next(iter(self._older))
            for offset in self._older.pop(oldest):
                self._newest.pop(offset, None)

    def cancel_copy(self, half_offset: int, newest: int) -> None:
        """The copy was not stored."""
        older = self._older.pop(newest, [])
        self._newest.pop(half_offset, None)
        if older[:-1]:
            self._older[half_offset] = older[:-1]
            for offset in older[:-1]:
                self._newest[offset] = half_offset

    def skip_to(self, half_offset: int) -> None:
        """The queue begins at `half_offset`: retention deleted what was before."""
        if half_offset > self.base:
            del self._states[: half_offset - self.base]
            self.base = half_offset
            self._advance()

    def next_open(self, half_offset: int) -> int:
        """The first offset from `half_offset` on that is open."""
        at = max(half_offset - self.base, 0)
        found = self._states.find(OPEN, at) if at < len(self._states) else at
        return self.base + (len(self._states) if found < 0 else found)

    def open_count(self, end: int) -> int:
        """How many of the half messages before `end` of the queue are open. Some after it may have ended: readers may
        not see them yet."""
        count = max(end - self.base, 0)
        return count - (min(len(self._states), count) - self._states.count(OPEN, 0, count))

    def _set(self, half_offset: int, state: int) -> None:
        at = half_offset - self.base
        if at < 0:
            return
        if at >= len(self._states):
            self._states.extend(bytes(at + 1 - len(self._states)))
        self._states[at] = state

    def _advance(self) -> None:
        if self._states and self._states[0] == ENDED:
            ended = len(self._states) - len(self._states.lstrip(bytes((ENDED,))))
            del self._states[:ended]
            self.base += ended
        while self._ops and self._ops[0][2] < self.base:
            self.op_base = self._ops.popleft()[1]


def op_half_offsets(body: bytes) -> list[int]:
    """The half offsets in an op message: `12,13,`, or one as Apache 4 wrote it; other words are ignored."""
    return [int(word) for word in body.split(b",") if word.isdigit() and len(word) < 19]
