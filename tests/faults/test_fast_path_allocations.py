"""Every allocation of the fast path and of its batch may fail: batches stay whole, and the next client is served."""

from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from firearrow._native.wire.codes import ResponseCode
from tests.support.fast_path_harness import FastPathConnection, FastPathHarness
from tests.support.send_frames import batch, plain
from tests.support.stores import bodies, item, properties_of

testcapi = pytest.importorskip("_testcapi", reason="this Python cannot let allocations fail")
pytestmark = pytest.mark.alone
FAILURES = 100
ITEMS = 5


def five(opaque: int) -> bytes:
    items = [
        item(b"%d.%d" % (opaque, n), properties_of(UNIQ_KEY=f"{opaque * ITEMS + n:032X}"))
        for n in range(ITEMS)
    ]
    return batch(opaque, b"".join(items), queue_id=1)


class FailingHarness:
    """A FastPathHarness in which one allocation fails."""

    def __init__(self, folder: Path, *, sync_flush: bool) -> None:
        self.harness = FastPathHarness(folder, sync_flush=sync_flush)
        self.opaques = count(1)
        self.sync_flush = sync_flush
        self.failed = 0
        connection = FastPathConnection(self.harness)
        connection.feed(plain(next(self.opaques)), five(next(self.opaques)))
        self.run_callbacks()

    def failing(self, number: int, work: Callable[..., object], *arguments: object) -> bool:
        """Whether it ran to the end; a loop continues after the failure."""
        testcapi.set_nomemory(number, number + 1)
        try:
            work(*arguments)
        except MemoryError:
            testcapi.remove_mem_hooks()
            self.failed += 1
            return False
        testcapi.remove_mem_hooks()
        return True

    def failing_turn(self, number: int) -> None:
        for callback in self.harness.timers.take_callbacks():
            self.failing(number, callback.run)
        self.run_callbacks()

    def run_callbacks(self) -> None:
        self.harness.timers.run()
        if self.sync_flush:
            self.harness.store.sync()
            self.harness.write_batch.synced(self.harness.store.written)

    def is_served(self) -> bool:
        connection, opaque = FastPathConnection(self.harness), next(self.opaques)
        connection.feed(plain(opaque))
        self.run_callbacks()
        return connection.answers() == [(opaque, ResponseCode.SUCCESS)]

    def batches(self) -> Counter[int]:
        """How often each number of messages of one batch is there."""
        found = Counter(
            body.split(b".")[0] for body in bodies(self.harness.store, queue_id=1) if b"." in body
        )
        return Counter(found.values())


@pytest.mark.parametrize("sync_flush", [False, True])
def test_a_request_whose_allocation_fails_ends_only_its_connection(tmp_path: Path, sync_flush: bool) -> None:
    failing_harness = FailingHarness(tmp_path, sync_flush=sync_flush)
    for number in range(FAILURES):
        connection, other = (
            FastPathConnection(failing_harness.harness),
            FastPathConnection(failing_harness.harness),
        )
        opaques = [next(failing_harness.opaques) for _ in range(4)]
        frames = [plain(opaques[0]), five(opaques[1]), plain(opaques[2]), five(opaques[3])]
        alone = next(failing_harness.opaques)
        other.feed(plain(alone))
        if not failing_harness.failing(number, connection.feed, *frames):
            connection.output.close()
        failing_harness.run_callbacks()
        assert other.answers() == [(alone, ResponseCode.SUCCESS)], number
        assert failing_harness.is_served(), number
    assert failing_harness.failed > 10
    assert set(failing_harness.batches()) == {ITEMS}


def test_a_batch_whose_allocation_fails_answers_all_or_closes(tmp_path: Path) -> None:
    failing_harness = FailingHarness(tmp_path, sync_flush=False)
    closed = 0
    for number in range(FAILURES // 2):
        connections, opaques = (
            [FastPathConnection(failing_harness.harness) for _ in range(3)],
            [next(failing_harness.opaques) for _ in range(3)],
        )
        for connection, opaque in zip(connections, opaques, strict=True):
            connection.feed(plain(opaque), five(opaque))
        failing_harness.failing_turn(number)
        for connection, opaque in zip(connections, opaques, strict=True):
            assert [asked for asked, _ in connection.answers()] == [
                opaque
            ] * 2 or connection.output.closing, number
            closed += connection.output.closing
        assert failing_harness.is_served(), number
    assert failing_harness.failed > 1
    assert closed >= 1
    assert failing_harness.failed + closed > 10, "each allocation of a batch fails once"
    assert set(failing_harness.batches()) == {ITEMS}


def test_a_synced_batch_whose_allocation_fails_does_not_affect_the_next(tmp_path: Path) -> None:
    failing_harness = FailingHarness(tmp_path, sync_flush=True)
    for number in range(FAILURES // 2):
        connection = FastPathConnection(failing_harness.harness)
        connection.feed(plain(next(failing_harness.opaques)), five(next(failing_harness.opaques)))
        failing_harness.failing_turn(number)
        assert failing_harness.is_served(), number
    assert failing_harness.failed > 1
    assert set(failing_harness.batches()) == {ITEMS}
