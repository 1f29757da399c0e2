"""Every allocation of a put and of its write may fail: the store stays consistent, and what it accepted can be read."""

from collections.abc import Callable
from pathlib import Path

import pytest

from firearrow._native.store.message_store import InnerMessage, MessageStore
from tests.support.stores import HOST, bodies, item, log_records, open_store, properties_of, put

testcapi = pytest.importorskip("_testcapi", reason="this Python cannot let allocations fail")
pytestmark = pytest.mark.alone
SEGMENT_BYTES = 1 << 16


def one(store: MessageStore, number: int) -> None:
    put(
        store,
        b"%d." % number + bytes(number % 7 * 900),
        properties=properties_of(KEYS=f"a{number} b", TAGS="t"),
    )


def batch(store: MessageStore, number: int) -> None:
    items = b"".join(item(b"%d.%d." % (number, n), properties_of(KEYS=f"k{n}")) for n in range(5))
    store.put_batch(
        InnerMessage("T", 0, items, b"", born_timestamp=1, born_host=HOST, store_host=HOST), now_ms=1
    )


@pytest.mark.parametrize("stage", [one, batch])
def test_a_failed_allocation_leaves_nothing_staged(
    tmp_path: Path, stage: Callable[[MessageStore, int], None]
) -> None:
    failed = taken = 0
    with open_store(tmp_path, segment_bytes=SEGMENT_BYTES, queue_file_bytes=2000) as store:
        for number in range(300):
            before = store.next_offset("T", 0), store.staged_bytes
            testcapi.set_nomemory(number % 60, number % 60 + 1)
            try:
                stage(store, number)
            except MemoryError:
                testcapi.remove_mem_hooks()
                failed += 1
                assert (max(before[0], 0), before[1]) == (
                    max(store.next_offset("T", 0), 0),
                    store.staged_bytes,
                )
            else:
                testcapi.remove_mem_hooks()
                taken += 1 if stage is one else 5
            if number % 3 == 0:
                store.write()
        store.write()
        found = bodies(store)
        assert failed > 5
        assert len(found) == taken == len(log_records(tmp_path))
    with open_store(tmp_path, segment_bytes=SEGMENT_BYTES, queue_file_bytes=2000) as store:
        assert bodies(store) == found


def test_a_write_whose_allocation_fails_leaves_nothing_of_the_batch(tmp_path: Path) -> None:
    failed = 0
    taken: list[bytes] = []
    with open_store(tmp_path, segment_bytes=SEGMENT_BYTES, queue_file_bytes=2000) as store:
        for number in range(200):
            staged = [
                b"%d.%d." % (number, n) + bytes(9000) for n in range(6)
            ]  # most batches go to a new segment
            for body in staged:
                put(store, body)
            testcapi.set_nomemory(number % 50, number % 50 + 1)
            try:
                store.write()
            except MemoryError:
                testcapi.remove_mem_hooks()
                failed += 1
            testcapi.remove_mem_hooks()
            assert store.staged_bytes == 0
            if store.next_offset("T", 0) > len(taken):  # it was stored, and only the response to us failed
                taken += staged
            assert store.next_offset("T", 0) == len(taken)
        assert failed > 5
        assert bodies(store) == taken
    assert len(log_records(tmp_path)) == len(taken)
    with open_store(tmp_path, segment_bytes=SEGMENT_BYTES, queue_file_bytes=2000) as store:
        assert bodies(store) == taken
