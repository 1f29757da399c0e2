"""OpenHalfMessages: what is open, what ended, which copy a decision ends; the progress of both queues."""

import random

import pytest

from firearrow.broker.transactions import open_halves as module
from firearrow.broker.transactions.open_halves import OpenHalfMessages, op_half_offsets


def open_below(open_halves: OpenHalfMessages, high: int) -> list[int]:
    found, at = [], open_halves.next_open(0)
    while at < high:
        found.append(at)
        at = open_halves.next_open(at + 1)
    return found


def test_the_base_moves_past_ended_messages() -> None:
    open_halves = OpenHalfMessages(10, 0)
    open_halves.end([11, 12])
    assert (open_halves.base, open_below(open_halves, 15)) == (10, [10, 13, 14])
    open_halves.end([10])
    assert (open_halves.base, open_below(open_halves, 15)) == (13, [13, 14])
    assert not open_halves.is_open(12)


def test_ending_messages_are_not_open_and_hold_the_base() -> None:
    open_halves = OpenHalfMessages(0, 0)
    open_halves.begin(0)
    assert not open_halves.is_open(0)
    assert (open_halves.base, open_halves.next_open(0)) == (0, 1)
    open_halves.reopen(0)
    assert open_halves.is_open(0)


def test_what_ended_past_the_end_does_not_lower_the_count() -> None:
    """After a restart readers may not see it yet."""
    open_halves = OpenHalfMessages(10, 0)
    open_halves.end([11, 13, 14])
    assert [open_halves.open_count(end) for end in (9, 10, 11, 12, 13, 15, 17)] == [0, 0, 1, 1, 2, 2, 4]


def test_a_decision_for_any_copy_ends_the_newest() -> None:
    open_halves = OpenHalfMessages(0, 0)
    open_halves.copy(0, 3)
    open_halves.end([0])
    open_halves.copy(3, 7)
    open_halves.end([3])
    assert [open_halves.newest(offset) for offset in (0, 3, 7, 1)] == [7, 7, 7, 1]
    open_halves.end([7])
    assert [open_halves.newest(offset) for offset in (0, 3, 7)] == [0, 3, 7]
    assert not any(map(open_halves.is_open, (0, 3, 7)))


def test_a_copy_that_was_not_stored_does_not_count() -> None:
    open_halves = OpenHalfMessages(0, 0)
    open_halves.copy(0, 3)
    open_halves.end([0])
    open_halves.copy(3, 7)
    open_halves.cancel_copy(3, 7)
    assert (open_halves.newest(0), open_halves.newest(3)) == (3, 3)
    open_halves.copy(5, 8)
    open_halves.cancel_copy(5, 8)
    assert open_halves.newest(5) == 5


def test_copies_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COPIES_MAX", 10)
    open_halves = OpenHalfMessages(0, 0)
    for offset in range(100):
        open_halves.copy(offset, 1000 + offset)
    known = [offset for offset in range(100) if open_halves.newest(offset) != offset]
    assert known == list(range(90, 100))


def test_op_messages_are_processed_in_order() -> None:
    open_halves = OpenHalfMessages(0, 5)
    open_halves.load(5, [1, 2])
    assert open_halves.op_base == 5
    open_halves.end([0])
    assert (open_halves.base, open_halves.op_base) == (3, 6)
    open_halves.load(6, [])
    assert open_halves.op_base == 7


def test_op_offsets_below_the_base_are_recognized() -> None:
    open_halves = OpenHalfMessages(10, 0)
    open_halves.load(0, [3, 12])
    assert open_halves.was_ended_early(3)
    assert not open_halves.was_ended_early(12)
    assert not open_halves.is_open(12)
    assert open_halves.is_open(13)


def test_the_log_deleted_the_front() -> None:
    open_halves = OpenHalfMessages(0, 0)
    open_halves.load(0, [5])
    open_halves.skip_to(5)
    assert (open_halves.base, open_halves.op_base) == (6, 1)
    open_halves.skip_to(3)
    assert open_halves.next_open(0) == 6


def test_any_order_of_ends_compared_with_a_simple_model() -> None:
    rng = random.Random(7)
    for _ in range(50):
        open_halves, ended = OpenHalfMessages(0, 0), set[int]()
        for op in range(60):
            some = rng.sample(range(80), rng.randrange(1, 4))
            open_halves.end(some)
            open_halves.note_op(op, some)
            ended |= set(some)
            base = next(offset for offset in range(81) if offset not in ended)
            assert open_halves.base == base
            assert open_below(open_halves, 80) == [offset for offset in range(80) if offset not in ended]
            assert open_halves.op_base <= op + 1


@pytest.mark.parametrize(
    ("body", "offsets"),
    [
        (b"12,13,", [12, 13]),
        (b"7", [7]),
        (b"", []),
        (b",,", []),
        (b"-1,x,4,", [4]),
        (b"9" * 40, []),
        ("\u0663,5,".encode(), [5]),
    ],
)
def test_what_an_op_message_names(body: bytes, offsets: list[int]) -> None:
    assert op_half_offsets(body) == offsets
