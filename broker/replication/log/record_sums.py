"""RecordSums: size and CRC32 of the records that slaves ask for (firearrowRecordOffset of EXCHANGE_BROKER_HA_INFO): a
record is compared without giving it to another process.

Bytes in a body may look like a record. One that has a queue's entry is one; one without, as of a deleted topic, must be
reached by a walk over the records from the start of its file. Who asks may be anybody, so the walk goes in turns of
TURN_BYTES with pauses, all walks take turns, and where it came by is remembered. Loop thread of a master, whose log is
never truncated.
"""

import asyncio
import struct
from bisect import bisect_right, insort
from collections import Counter
from zlib import crc32

from firearrow._native.store.message_store import MessageStore
from firearrow._native.wire.codes import ResponseCode
from firearrow.broker.base.errors import Refusal
from firearrow.broker.base.peer import Peer, counted_address

RECORD_OFFSET, RECORD_SUM = "firearrowRecordOffset", "firearrowRecordSum"
"""Of the request, and of our masters' answer: the record there, as `record_sum` has it; empty if there is none."""
TURN_BYTES = 1 << 20
"""A few ms, also if all records are small."""
PAUSE_S = 0.001
WALK_S = 2.0
"""A slave waits for 3 s; when it asks again, the walk goes on from where it came to."""
WALKS_MAX = 16
HOST_WALKS_MAX = 2
"""So that those of one host leave turns to a slave at another one."""
STARTS_MAX = 8192
"""Starts of records that are remembered, one for each turn: enough for 8 GiB."""
RECORD_SIZE = struct.Struct(">i")


def record_sum(record: bytes | memoryview) -> str:
    return _sum_text(len(record), crc32(record))


def _sum_text(size: int, checksum: int) -> str:
    return f"{size}-{checksum}"


class RecordSums:
    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._turn = asyncio.Lock()
        self._walks: Counter[str] = Counter()
        self._starts: list[int] = []

    async def of(self, offset: int, peer: Peer) -> str:
        """Also of a record that readers do not see, as it is not confirmed yet, or was trimmed; empty: there is none.
        Refusal: it is not known, or not yet."""
        if offset < 0 or not await self._begins_record(offset, peer):
            return ""
        checksum, at, end = 0, offset, offset + RECORD_SIZE.size
        while at < end:
            part = self._store.log_bytes(at, min(TURN_BYTES, end - at))
            if part is None:
                return ""  # its file has been deleted meanwhile
            if at == offset:
                end = offset + RECORD_SIZE.unpack_from(part)[0]
            checksum = crc32(part, checksum)
            at += len(part)
            del part  # it holds the file's mapping
            await asyncio.sleep(0)
        return _sum_text(end - offset, checksum)

    async def _begins_record(self, offset: int, peer: Peer) -> bool:
        found = self._store.reader.begins_record(offset)
        if found is not None:
            return found
        host = counted_address(peer.remote[0])
        if self._walks[host] >= HOST_WALKS_MAX or self._walks.total() >= WALKS_MAX:
            raise Refusal(
                ResponseCode.SYSTEM_BUSY,
                f"{self._walks[host]} walks for {host}, {self._walks.total()} in all, to records without an entry are "
                "not done: ask again later",
            )
        self._walks[host] += 1
        try:
            return await self._walk(offset, peer)
        finally:
            self._walks[host] -= 1
            self._walks += Counter()  # drop hosts without a walk

    async def _walk(self, offset: int, peer: Peer) -> bool:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + WALK_S
        before = bisect_right(self._starts, offset)
        at = self._starts[before - 1] if before else 0
        while not peer.closed:
            async with self._turn:
                came_from, at = at, self._store.reader.skip_records(at, offset, TURN_BYTES)
                await asyncio.sleep(PAUSE_S)
            if at < 0 or at >= offset:
                return at == offset
            if at == came_from:
                raise Refusal(
                    ResponseCode.SYSTEM_ERROR,
                    f"whether a record begins at {offset} is not known, as the log is damaged at {at}: stop this "
                    "broker and run `firearrow store verify`",
                )
            self._remember(at)
            if loop.time() >= deadline:
                raise Refusal(
                    ResponseCode.SYSTEM_BUSY,
                    f"the walk to the record at {offset} has come to {at}: ask again, and it continues from there",
                )
        return False

    def _remember(self, start: int) -> None:
        """Not those close together."""
        at = bisect_right(self._starts, start)
        if at and self._starts[at - 1] > start - TURN_BYTES:
            return
        insort(self._starts, start)
        if len(self._starts) > STARTS_MAX:  # slaves ask for what is near the log's end
            del self._starts[: STARTS_MAX // 2]
