"""The checker finds each kind of violation in a history built by hand, and nothing in allowed histories."""

from collections.abc import Callable

import pytest

from tests.history.checker import allowed
from tests.history.history_builder import HistoryBuilder

GOOD: dict[str, Callable[[HistoryBuilder], object]] = {
    "all is well": lambda builder: (
        builder.acknowledged("s.1.0", "s.2.0").ends(2).joined().got(0, "s.1.0").got(1, "s.2.0").offset(2)
    ),
    "the response was lost, the message was not": lambda builder: (
        builder.send("s.1.0").failed("s.1.0").stored(0, "s.1.0").acknowledged("s.1.1", start=1).ends(2)
    ),
    "the message was lost with its response": lambda builder: (
        builder.send("s.1.0").failed("s.1.0").acknowledged("s.1.1").ends(1)
    ),
    "the client sent it twice, as it may": lambda builder: (
        builder.send("s.1.0", copies=3).sent("s.1.0", 1).stored(0, "s.1.0").stored(1, "s.1.0").ends(2)
    ),
    "delivered again because it was not committed": lambda builder: (
        builder.acknowledged("s.1.0", "s.2.0").ends(2).joined().got(0, "s.1.0").got(1, "s.2.0").offset(1)
        .got(1, "s.2.0")
    ),
    "failed, then redelivered by the retry topic": lambda builder: (
        builder.acknowledged("s.1.0").ends(1).joined().got(0, "s.1.0", ok=False).got(7, "s.1.0", times=1)
    ),
    "popped again before the acknowledgement was answered": lambda builder: (
        builder.acknowledged("s.1.0").ends(1).joined("pop").got(0, "s.1.0").got(0, "s.1.0", popped=builder.now)
        .acked("s.1.0")
    ),
    "each copy is popped, one of them is acknowledged": lambda builder: (
        builder.send("s.1.0", copies=2).sent("s.1.0", 1).stored(0, "s.1.0").stored(1, "s.1.0").ends(2).joined("pop")
        .got(0, "s.1.0").acked("s.1.0").got(1, "s.1.0", popped=builder.now + 1).acked("s.1.0")
    ),
    "a shared group's offset moves back while members change": lambda builder: (
        builder.acknowledged("s.1.0", "s.2.0").ends(2).joined(shared=True).got(0, "s.1.0").got(1, "s.2.0")
        .offset(2).offset(1).got(1, "s.2.0")
    ),
    "a commit in flight may be kept or not": lambda builder: (
        builder.acknowledged("s.1.0", "s.2.0").ends(2).joined("exact").got(0, "s.1.0").commit(1).committed(1)
        .got(1, "s.2.0").commit(2).offset(1).offset(2)
    ),
    "rolled back and not stored": lambda builder: builder.send("s.1.0", kind="half", fate="drop").sent("s.1.0", 0),
    "two senders in one queue in any order": lambda builder: (
        builder.send("s.1.0").send("t.1.0").sent("s.1.0", 1).sent("t.1.0", 0).stored(0, "t.1.0")
        .stored(1, "s.1.0").ends(2)
    ),
    "a window that was answered out of order": lambda builder: (
        builder.send("w.1.0").send("w.2.0").sent("w.2.0", 1).sent("w.1.0", 0).stored(0, "w.1.0")
        .stored(1, "w.2.0").ends(2)
    ),
}  # fmt: skip

BAD: dict[str, tuple[str, Callable[[HistoryBuilder], object]]] = {
    "acknowledged and not stored": ("lost", lambda builder: builder.send("s.1.0").sent("s.1.0", 0)),
    "acknowledged, but another is at its position": (
        "lost", lambda builder: builder.send("s.1.0").sent("s.1.0", 0).send("t.1.0").stored(0, "t.1.0").ends(1),
    ),
    "acknowledged with a delay and never delivered": (
        "lost", lambda builder: builder.send("s.1.0", kind="delay").sent("s.1.0", 0),
    ),
    "a committed transaction that was never delivered": (
        "lost", lambda builder: builder.send("s.1.0", kind="half").sent("s.1.0", 0),
    ),
    "two messages have one position": (
        "lost",
        lambda builder: builder.acknowledged("s.1.0").send("t.1.0").sent("t.1.0", 0).ends(1),
    ),
    "stored twice, sent once": (
        "repeated", lambda builder: builder.acknowledged("s.1.0").stored(1, "s.1.0").ends(2),
    ),
    "stored more often than the client may send it": (
        "repeated",
        lambda builder: (
            builder.send("s.1.0", copies=2).sent("s.1.0", 2).stored(0, "s.1.0").stored(1, "s.1.0")
            .stored(2, "s.1.0").ends(3)
        ),
    ),
    "rolled back and stored": (
        "rolled back",
        lambda builder: builder.send("s.1.0", kind="half", fate="drop").sent("s.1.0", 0).stored(0, "s.1.0").ends(1),
    ),
    "rolled back and delivered": (
        "rolled back",
        lambda builder: (
            builder.send("s.1.0", kind="half", fate="drop").sent("s.1.0", 0).joined().got(0, "s.1.0", times=1)
        ),
    ),
    "stored, but never sent": ("invented", lambda builder: builder.stored(0, "s.1.0").ends(1)),
    "stored in another topic": (
        "invented", lambda builder: builder.send("s.1.0", "Other").failed("s.1.0").stored(0, "s.1.0").ends(1),
    ),
    "delivered, but never sent": ("invented", lambda builder: builder.joined().got(0, "s.1.0", times=1)),
    "stored with another body": (
        "changed", lambda builder: builder.send("s.1.0").sent("s.1.0", 0).stored(0, "s.1.0", crc=5).ends(1),
    ),
    "delivered with another body": (
        "changed", lambda builder: builder.acknowledged("s.1.0").ends(1).joined().got(0, "s.1.0", crc=5),
    ),
    "read, but another message is there now": (
        "gone",
        lambda builder: (
            builder.send("s.1.0").failed("s.1.0").stored(0, "s.1.0").acknowledged("s.2.0").ends(1)
        ),
    ),
    "the queue ends earlier than before": (
        "gone", lambda builder: builder.acknowledged("s.1.0").ends(1).ends(0),
    ),
    "the queue begins earlier than before": (
        "gone", lambda builder: builder.ends(3, first=3).ends(3, first=2),
    ),
    "a gap in a queue": (
        "gone", lambda builder: builder.acknowledged("s.1.0").acknowledged("s.2.0", start=2).ends(3),
    ),
    "delivered, but nothing is stored there": (
        "gone",
        lambda builder: builder.send("s.1.0").failed("s.1.0").joined().got(0, "s.1.0"),
    ),
    "delivered, but another message is stored there": (
        "gone",
        lambda builder: (
            builder.send("s.1.0").failed("s.1.0").joined().got(0, "s.1.0").acknowledged("s.1.1").ends(1)
        ),
    ),
    "the later one is before the earlier": (
        "disordered",
        lambda builder: (
            builder.send("s.1.0").sent("s.1.0", 1).send("s.2.0").sent("s.2.0", 0).stored(0, "s.2.0")
            .stored(1, "s.1.0").ends(2)
        ),
    ),
    "an unanswered one is after its repetition": (
        "disordered",
        lambda builder: (
            builder.send("s.1.0").failed("s.1.0").acknowledged("s.1.1").stored(1, "s.1.0").ends(2)
        ),
    ),
    "a window is stored out of order": (
        "disordered",
        lambda builder: (
            builder.send("w.1.0").send("w.2.0").sent("w.1.0", 1).sent("w.2.0", 0).stored(0, "w.2.0")
            .stored(1, "w.1.0").ends(2)
        ),
    ),
    "never delivered": ("undelivered", lambda builder: builder.acknowledged("s.1.0").ends(1).joined()),
    "failed and never redelivered": (
        "undelivered", lambda builder: builder.acknowledged("s.1.0").ends(1).joined().got(0, "s.1.0", ok=False),
    ),
    "an orderly group got the second before the first": (
        "skipped",
        lambda builder: (
            builder.acknowledged("s.1.0", "s.2.0").ends(2).joined("orderly").got(1, "s.2.0").got(0, "s.1.0")
        ),
    ),
    "delivered again below the offset of the group": (
        "again",
        lambda builder: builder.acknowledged("s.1.0").ends(1).joined().got(0, "s.1.0").offset(1).got(0, "s.1.0"),
    ),
    "delivered again after its commit was answered": (
        "again",
        lambda builder: (
            builder.acknowledged("s.1.0").ends(1).joined("exact").got(0, "s.1.0").commit(1).committed(1)
            .got(0, "s.1.0")
        ),
    ),
    "popped again after it was acknowledged": (
        "again",
        lambda builder: (
            builder.acknowledged("s.1.0").ends(1).joined("pop").got(0, "s.1.0").acked("s.1.0")
            .got(0, "s.1.0", popped=builder.now + 1)
        ),
    ),
    "popped again after all its copies were acknowledged": (
        "again",
        lambda builder: (
            builder.send("s.1.0", copies=2).sent("s.1.0", 1).stored(0, "s.1.0").stored(1, "s.1.0").ends(2)
            .joined("pop").got(0, "s.1.0").acked("s.1.0").got(1, "s.1.0", popped=builder.now).acked("s.1.0")
            .got(1, "s.1.0", popped=builder.now + 1)
        ),
    ),
    "the group's offset moves back": (
        "backwards",
        lambda builder: (
            builder.acknowledged("s.1.0", "s.2.0").ends(2).joined().got(0, "s.1.0").got(1, "s.2.0").offset(2)
            .offset(1)
        ),
    ),
    "an answered commit is forgotten": (
        "forgotten",
        lambda builder: (
            builder.acknowledged("s.1.0").ends(1).joined("exact").got(0, "s.1.0").commit(1).committed(1).offset(-1)
        ),
    ),
    "an offset that was never committed": (
        "ahead",
        lambda builder: builder.acknowledged("s.1.0").ends(1).joined("exact").got(0, "s.1.0").offset(1),
    ),
    "an offset past the end of the queue": (
        "ahead",
        lambda builder: builder.acknowledged("s.1.0").ends(1).joined().got(0, "s.1.0").got(1, "s.1.0").offset(2),
    ),
    "an offset past the deliveries": (
        "ahead", lambda builder: builder.acknowledged("s.1.0").ends(1).joined().offset(1).got(0, "s.1.0"),
    ),
    "one id was sent twice": (
        "duplicate id", lambda builder: builder.send("s.1.0").failed("s.1.0").acknowledged("s.1.0").ends(1),
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", GOOD)
def test_allowed_histories(what: str) -> None:
    builder = HistoryBuilder()
    GOOD[what](builder)
    assert builder.rules() == set()


@pytest.mark.parametrize("what", BAD)
def test_violations(what: str) -> None:
    rule, build = BAD[what]
    builder = HistoryBuilder()
    build(builder)
    assert rule in builder.rules()


def test_messages_that_may_still_arrive_are_not_missing() -> None:
    builder = HistoryBuilder().acknowledged("s.1.0").ends(1).send("s.2.0").sent("s.2.0", 1).joined()
    assert builder.rules(settled=False) == set()
    assert builder.rules() == {"lost", "undelivered"}


def test_a_delivery_may_be_read_before_its_send() -> None:
    builder = HistoryBuilder().joined().got(0, "s.1.0")
    assert builder.rules(settled=False) == set()
    assert "invented" in builder.rules()


def test_a_lost_message_is_found_at_once_if_its_offset_was_reused() -> None:
    builder = (
        HistoryBuilder()
        .send("s.1.0")
        .sent("s.1.0", 0)
        .send("t.1.0")
        .failed("t.1.0")
        .stored(0, "t.1.0")
        .ends(1)
    )
    assert builder.rules(settled=False) == {"lost"}


def test_repeats_that_are_allowed_are_counted() -> None:
    builder = (
        HistoryBuilder()
        .send("s.1.0")
        .failed("s.1.0")
        .stored(0, "s.1.0")
        .ends(1)
        .joined()
        .got(0, "s.1.0")
        .got(0, "s.1.0")
    )
    assert builder.rules() == set()
    assert allowed(builder.history) == {
        "stored though unanswered": 1,
        "stored again by the client": 0,
        "delivered again": 1,
    }


def test_an_unknown_event_is_refused() -> None:
    with pytest.raises(ValueError, match="no event 'seen'"):
        HistoryBuilder().event("seen")
