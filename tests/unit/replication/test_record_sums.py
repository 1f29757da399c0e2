"""RecordSums: walks to records without an entry are few, and end with who asked."""

import asyncio
from collections.abc import Iterable, Sequence
from types import SimpleNamespace

import pytest

from firearrow._native.wire.codes import ResponseCode
from firearrow.broker.base.errors import Refusal
from firearrow.broker.replication.log import record_sums
from firearrow.broker.replication.log.record_sums import HOST_WALKS_MAX, TURN_BYTES, WALKS_MAX, RecordSums

FAR = 1 << 40


def sums() -> RecordSums:
    """Of a log whose records have no entries."""
    reader = SimpleNamespace(
        begins_record=lambda offset: None,
        skip_records=lambda at, until, max_bytes: min(at + max_bytes, until),
    )
    return RecordSums(SimpleNamespace(reader=reader, log_bytes=lambda at, size: None))  # type: ignore[arg-type]


async def walk(hosts: Iterable[str]) -> list[object]:
    walks = sums()
    peers = [SimpleNamespace(closed=False, remote=(host, 1)) for host in hosts]
    tasks = [asyncio.create_task(walks.of(FAR, peer)) for peer in peers]  # type: ignore[arg-type]
    await asyncio.sleep(0.05)
    for peer in peers:
        peer.closed = True
    return await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize(
    ("hosts", "count"),
    [(("h",), HOST_WALKS_MAX), ([f"h{number}" for number in range(WALKS_MAX + 1)], WALKS_MAX)],
)
def test_walks_are_bounded(hosts: Sequence[str], count: int) -> None:
    """In all, and for each host."""
    askers = [hosts[number % len(hosts)] for number in range(count + 1)]
    assert asyncio.run(walk(askers[:count])) == [""] * count
    *walked, refused = asyncio.run(walk(askers))
    assert walked == [""] * count
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
