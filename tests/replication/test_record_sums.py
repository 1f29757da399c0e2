"""RecordSums: walks to records without an entry are few, and end with who asked."""

import asyncio
from types import SimpleNamespace

import pytest

from firearrow._native.wire.codes import ResponseCode
from firearrow.broker.base.errors import Refusal
from firearrow.broker.replication import record_sums
from firearrow.broker.replication.record_sums import TURN_BYTES, WALKS_MAX, RecordSums

FAR = 1 << 40


def sums() -> RecordSums:
    """Of a log whose records have no entries."""
    reader = SimpleNamespace(
        begins_record=lambda offset: None,
        skip_records=lambda at, until, max_bytes: min(at + max_bytes, until),
    )
    return RecordSums(SimpleNamespace(reader=reader, log_bytes=lambda at, size: None))  # type: ignore[arg-type]


async def walk(count: int) -> list[object]:
    walks, peer = sums(), SimpleNamespace(closed=False)
    tasks = [asyncio.create_task(walks.of(FAR, peer)) for _ in range(count)]  # type: ignore[arg-type]
    await asyncio.sleep(0.05)
    peer.closed = True
    return await asyncio.gather(*tasks, return_exceptions=True)


def test_walks_are_bounded() -> None:
    assert asyncio.run(walk(WALKS_MAX)) == [""] * WALKS_MAX
    *walked, refused = asyncio.run(walk(WALKS_MAX + 1))
    assert walked == [""] * WALKS_MAX
    assert isinstance(refused, Refusal)
    assert refused.code == ResponseCode.SYSTEM_BUSY


def test_starts_that_are_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_sums, "STARTS_MAX", 8)
    remembering = sums()
    for number in range(1, 9):
        remembering._remember(number * TURN_BYTES)
    assert len(remembering._starts) == 8
    remembering._remember(9 * TURN_BYTES)
    assert remembering._starts == [number * TURN_BYTES for number in range(5, 10)]
