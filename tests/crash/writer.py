"""Writer: uses a store, with a mark for everything that it promises. Runs in the recorded process, one thread."""

import random
from pathlib import Path
from typing import Any

from firearrow._native.store.message_store import InnerMessage, MessageStore, StoreConfig
from tests.crash.marks import Marks
from tests.support.stores import drop_segments, item, properties_of, put

HOST = bytes((127, 0, 0, 1)) + (10911).to_bytes(4, "big")
PREPARED = 4
INNER_BATCH = 0xC0
START_MS = 1_700_000_000_000
Options = dict[str, Any]


class Writer:
    """`options` are those of MessageStore.open. Time advances by itself, a step for each `write`."""

    def __init__(self, root: Path, mark: Marks, draw: random.Random, options: Options) -> None:
        self.root, self.mark, self.draw, self.options = root, mark, draw, options
        self._most: int = options["max_message_bytes"]
        self.now_ms = START_MS
        self.numbers = 0
        mark("options", **options)
        self.open()

    def open(self) -> None:
        self.store = MessageStore.open(self.root, StoreConfig(**self.options))

    @property
    def is_synced(self) -> bool:
        return bool(self.options.get("sync_flush"))

    # ---- messages ----

    def put(self, topic: str, queue_id: int, *, large: bool = False, prepared: bool = False) -> None:
        body, properties, key = self._content(large)
        entry = max(self.store.next_offset(topic, queue_id), 0)
        placed = put(
            self.store,
            body,
            topic,
            queue_id,
            properties,
            self.now_ms,
            sys_flag=PREPARED if prepared else 0,
        )
        if not prepared:
            assert placed.queue_offset == entry, (placed, entry)
        self._mark_put(topic, queue_id, -1 if prepared else entry, placed.physical_offset, key)

    def put_batch(self, topic: str, queue_id: int, count: int) -> None:
        parts = [self._content(False) for _ in range(count)]
        entry = max(self.store.next_offset(topic, queue_id), 0)
        while len(items := b"".join(item(body, properties) for body, properties, _ in parts)) > self._most:
            parts.pop()
        placed = self.store.put_batch(
            InnerMessage(
                topic, queue_id, items, b"", born_timestamp=self.now_ms, born_host=HOST, store_host=HOST
            ),
            now_ms=self.now_ms,
        )
        for number, (at, (_, _, key)) in enumerate(zip(placed.physical_offsets, parts, strict=True)):
            self._mark_put(topic, queue_id, entry + number, at, key)

    def put_inner_batch(self, topic: str, queue_id: int, count: int) -> None:
        """One record with several messages, in a batch queue."""
        body, properties, key = self._content(False)
        base = max(self.store.next_offset(topic, queue_id), 0)
        numbers = properties_of(INNER_NUM=str(count), INNER_BASE=str(base))
        placed = put(
            self.store,
            item(body) * count,
            topic,
            queue_id,
            properties + numbers,
            self.now_ms,
            sys_flag=INNER_BATCH,
        )
        assert placed.queue_offset == base, (placed, base)
        self._mark_put(topic, queue_id, base, placed.physical_offset, key, count=count)

    def _content(self, large: bool) -> tuple[bytes, bytes, str]:
        """Body, properties and a unique key."""
        self.numbers += 1
        key = f"k{self.numbers}"
        body = self.draw.randbytes(self.draw.randint(600, 1800) if large else self.draw.randint(0, 120))
        more = {"P": "p" * self.draw.randint(500, 1500)} if self.draw.random() < 0.15 else {}
        return body, properties_of(KEYS=key, TAGS=self.draw.choice("abc"), **more), key

    def _mark_put(self, topic: str, queue_id: int, entry: int, at: int, key: str, **more: int) -> None:
        self.mark("putting", topic=topic, queue=queue_id, entry=entry, at=at, key=key, **more)

    # ---- write batches ----

    def write(self) -> None:
        """Writes what was put, as one batch; `written` is what ASYNC_FLUSH acknowledges."""
        self.mark("writing", end=self._staged_end())
        self.mark("written", end=self.store.write())
        self.now_ms += self.draw.choice((0, 1, 40, 900, 2500))

    def sync(self) -> None:
        """`synced` is what SYNC_FLUSH acknowledges and makes visible."""
        end = self.store.sync()
        self.store.confirm(end)
        self.mark("synced", end=end)

    def put_and_write(self, queues: list[tuple[str, int]], count: int) -> None:
        for _ in range(count):
            topic, queue_id = self.draw.choice(queues)
            kind = self.draw.random()
            if kind < 0.1:
                self.put_batch(topic, queue_id, self.draw.randint(1, 4))
            else:
                self.put(topic, queue_id, large=kind > 0.9, prepared=0.1 <= kind < 0.15)
        self.write()

    def flush(self) -> None:
        """As the flusher does: the log, the next segment, then queues, index and checkpoint."""
        self.sync()
        self.store.prepare()
        self.store.flush_queues()

    # ---- life ----

    def drop_segments(self, most: int = 1) -> None:
        """By force, or because they are old; then one is kept to be recycled."""
        self.mark("dropping", most=most)
        force = self.draw.random() < 0.2
        drop_segments(self.store, force=force, at_most=most)
        self.mark("dropped", below=self.store.min_physical)

    def drop_topic(self, topic: str) -> None:
        self.mark("forgetting", topic=topic)
        self.store.drop_topic(topic)

    def close(self) -> None:
        self.mark("closing")
        self.store.close()
        self.mark("synced", end=self.store.written)

    def reopen(self, *, kill: bool) -> None:
        if kill:
            self.store.abandon()
        else:
            self.close()
        self.open()

    def _staged_end(self) -> int:
        return self.store.written + self.store.staged_bytes
