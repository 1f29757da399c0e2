"""TransactionService without space: the log's file cannot grow, a message or an op message is refused."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from firearrow._native.store.message_store import PutRefused, PutResult, PutStatus
from firearrow._native.wire.codes import ResponseCode
from firearrow.broker.base.errors import Refusal
from firearrow.broker.base.message import Message
from tests.support.transaction_harness import COMMIT, HALF, OP, ROLLBACK, TransactionHarness, asked_for


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[TransactionHarness]:
    harness = TransactionHarness(tmp_path)
    yield harness
    harness.close()


@contextmanager
def full_disk() -> Iterator[None]:
    """A file size limit simulates it."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_leaves_it_open(harness: TransactionHarness) -> None:
    """The write fails: neither the message nor the op message is there."""
    harness.end(harness.prepare(b"0"), COMMIT)
    first, second = harness.prepare(b"1"), harness.prepare(b"2")
    with full_disk():
        harness.decide(first, COMMIT)
        harness.decide(second, ROLLBACK)
        harness.timers.run()
    codes = [answer.code for answer in harness.peer.replies]
    assert codes == [ResponseCode.SERVICE_NOT_AVAILABLE] * 2
    assert (harness.bodies("T", 1), harness.marks()) == ([b"0"], [b"0,"])
    harness.peer.replies.clear()
    harness.end(first, COMMIT)
    harness.end(second, COMMIT)
    assert harness.bodies("T", 1) == [b"0", b"1", b"2"]


def test_a_full_disk_that_refuses_the_message_leaves_it_open(harness: TransactionHarness) -> None:
    """There is no space for the first entry of the topic's queue."""
    half = harness.prepare()
    with full_disk(), pytest.raises(Refusal, match="not available"):
        harness.end(half, COMMIT)
    answer = harness.end(half, COMMIT)
    assert answer is not None
    assert harness.bodies("T", 1) == [b"x"]


@pytest.mark.parametrize("fault", [PutRefused(PutStatus.SERVICE_NOT_AVAILABLE, "disk"), MemoryError()])
def test_an_op_message_without_space_is_written_later(
    harness: TransactionHarness, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    """The final message is staged, its op message is refused: it stays decided. A rollback is refused with its op."""
    first, second = harness.prepare(b"1"), harness.prepare(b"2")
    put = harness.appender.put

    def refuse(message: Message, **how: Any) -> PutResult:  # noqa: ANN401
        if message.topic == OP:
            raise fault
        return put(message, **how)

    with monkeypatch.context() as patch:
        patch.setattr(harness.appender, "put", refuse)
        harness.decide(first, COMMIT)
        harness.decide(second, ROLLBACK)
        harness.timers.run()
    codes = sorted(answer.code for answer in harness.peer.replies)
    assert codes == [0, ResponseCode.SERVICE_NOT_AVAILABLE]
    harness.peer.replies.clear()
    harness.end(first, COMMIT)
    assert (harness.bodies("T", 1), harness.marks()) == ([b"1"], [])
    asked = harness.join()
    [request] = harness.next_round(asked)
    assert asked_for(harness, request).body == b"2"
    assert harness.marks() == [b"0,"]


def test_a_full_disk_ends_a_round_and_loses_nothing(harness: TransactionHarness) -> None:
    asked = harness.join()
    half = harness.prepare()
    with full_disk():
        assert harness.next_round(asked) == []
    assert len(harness.records(HALF)) == 1
    [request] = harness.next_round(asked)
    harness.end(asked_for(harness, request), COMMIT, checked=True)
    harness.end(half, COMMIT)
    assert harness.bodies("T", 1) == [b"x"]
