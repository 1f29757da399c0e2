from typing import Protocol

from firearrow._native.base.clock import Clock
from firearrow._native.fastpath.access_check import AccessCheck
from firearrow._native.fastpath.quotas import Quotas
from firearrow._native.fastpath.request_times import PutCounts, RequestTimes
from firearrow._native.fastpath.topic_cache import Count, PlainTopics
from firearrow._native.fastpath.write_batch import WriteBatch
from firearrow._native.store.message_store import MessageStore
from firearrow._native.wire.unique_ids import UniqueIds

class Stats(Protocol):
    def counts(self, topic: str) -> tuple[Count, Count]: ...
    def put_counts(self, topic: str, message_type: str) -> PutCounts: ...
    def put_all(self, messages: int, size: int, requests: int) -> None: ...

class Sender:
    """Plain sends without a Python object for each."""

    def __init__(
        self,
        plain_topics: PlainTopics,
        store: MessageStore,
        write_batch: WriteBatch,
        stats: Stats,
        clock: Clock,
        ids: UniqueIds,
        host: bytes,
        times: RequestTimes | None = None,
    ) -> None:
        """`ids`: unique keys of messages without one; `host`: the broker's address as in records."""
    def configure(self, added: bytes, marks: dict[str, str], from_ms: int) -> None:
        """`added`: properties that every message gets; `marks`: fields at the start of every response;
        `from_ms`: earlier sends are not handled here."""
    def limit(self, quotas: Quotas | None) -> None:
        """None: no quota limits sends."""
    def protect(self, access: AccessCheck) -> None:
        """Handle only what `access` lets through."""
    def count(self) -> None:
        """Report the counts of all topics since the last call."""
