"""Ledger: what is open, what ended, which copy a decision ends; how far both queues are worked off."""

import random

import pytest

from firearrow.broker.life.transactions import ledger as module
from firearrow.broker.life.transactions.ledger import Ledger, marked


def open_below(ledger: Ledger, high: int) -> list[int]:
    found, at = [], ledger.next_open(0)
    while at < high:
        found.append(at)
        at = ledger.next_open(at + 1)
    return found


def test_the_base_moves_over_what_ended() -> None:
    ledger = Ledger(10, 0)
    ledger.end([11, 12])
    assert (ledger.base, open_below(ledger, 15)) == (10, [10, 13, 14])
    ledger.end([10])
    assert (ledger.base, open_below(ledger, 15)) == (13, [13, 14])
    assert not ledger.is_open(12)


def test_what_is_ending_is_not_open_and_holds_the_base() -> None:
    ledger = Ledger(0, 0)
    ledger.begin(0)
    assert not ledger.is_open(0)
    assert (ledger.base, ledger.next_open(0)) == (0, 1)
    ledger.reopen(0)
    assert ledger.is_open(0)


def test_a_decision_for_any_copy_ends_the_newest() -> None:
    ledger = Ledger(0, 0)
    ledger.copy(0, 3)
    ledger.end([0])
    ledger.copy(3, 7)
    ledger.end([3])
    assert [ledger.newest(offset) for offset in (0, 3, 7, 1)] == [7, 7, 7, 1]
    ledger.end([7])
    assert [ledger.newest(offset) for offset in (0, 3, 7)] == [0, 3, 7]
    assert not any(map(ledger.is_open, (0, 3, 7)))


def test_a_copy_that_was_not_stored_is_none() -> None:
    ledger = Ledger(0, 0)
    ledger.copy(0, 3)
    ledger.end([0])
    ledger.copy(3, 7)
    ledger.uncopy(3, 7)
    assert (ledger.newest(0), ledger.newest(3)) == (3, 3)
    ledger.copy(5, 8)
    ledger.uncopy(5, 8)
    assert ledger.newest(5) == 5


def test_copies_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COPIES_MAX", 10)
    ledger = Ledger(0, 0)
    for offset in range(100):
        ledger.copy(offset, 1000 + offset)
    known = [offset for offset in range(100) if ledger.newest(offset) != offset]
    assert known == list(range(90, 100))


def test_op_messages_are_worked_off_in_order() -> None:
    ledger = Ledger(0, 5)
    ledger.load(5, [1, 2])
    assert ledger.op_base == 5
    ledger.end([0])
    assert (ledger.base, ledger.op_base) == (3, 6)
    ledger.load(6, [])
    assert ledger.op_base == 7


def test_marks_below_the_base_are_known_as_early() -> None:
    ledger = Ledger(10, 0)
    ledger.load(0, [3, 12])
    assert ledger.was_ended_early(3)
    assert not ledger.was_ended_early(12)
    assert not ledger.is_open(12)
    assert ledger.is_open(13)


def test_the_log_dropped_the_front() -> None:
    ledger = Ledger(0, 0)
    ledger.load(0, [5])
    ledger.skip_to(5)
    assert (ledger.base, ledger.op_base) == (6, 1)
    ledger.skip_to(3)
    assert ledger.next_open(0) == 6


def test_any_order_of_ends_against_a_plain_model() -> None:
    rng = random.Random(7)
    for _ in range(50):
        ledger, ended = Ledger(0, 0), set[int]()
        for op in range(60):
            some = rng.sample(range(80), rng.randrange(1, 4))
            ledger.end(some)
            ledger.note_op(op, some)
            ended |= set(some)
            base = next(offset for offset in range(81) if offset not in ended)
            assert ledger.base == base
            assert open_below(ledger, 80) == [offset for offset in range(80) if offset not in ended]
            assert ledger.op_base <= op + 1


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
    assert marked(body) == offsets
