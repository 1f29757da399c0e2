"""QUERY_MESSAGE over the real store: the index's last update is reported only with messages."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from firearrow._native.store.message_store import InnerMessage, MessageStore, StoreConfig
from firearrow.broker.handlers.query import QueryHandler
from firearrow.broker.quotas.quota_check import QuotaCheck
from firearrow.broker.quotas.quota_table import QuotaTable
from tests.support.handler_harness import HandlerHarness

HOST = bytes((127, 0, 0, 1)) + (10911).to_bytes(4, "big")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path, StoreConfig(segment_bytes=1 << 20, queue_file_bytes=2000)) as store:
        for now_ms in (1000, 2000):
            store.put(
                InnerMessage(
                    "T", 1, b"body", b"KEYS\x01k\x02", born_timestamp=now_ms, born_host=HOST, store_host=HOST
                ),
                now_ms=now_ms,
            )
        store.write()
        yield store


@pytest.mark.parametrize(("key", "code", "last_ms"), [("k", 0, "2000"), ("none", 22, "0")])
def test_a_query_without_messages_reports_no_index_update(
    store: MessageStore, key: str, code: int, last_ms: str
) -> None:
    harness = HandlerHarness()
    harness.serve(QueryHandler(store, harness.table, harness.config, QuotaCheck(QuotaTable())))
    ext = {"topic": "T", "key": key, "maxNum": 32, "beginTimestamp": 0, "endTimestamp": 1 << 50}
    answer = harness.ask(12, ext)
    assert (answer.code, answer.ext["indexLastUpdateTimestamp"]) == (code, last_ms)
    assert (answer.ext["indexLastUpdatePhyoffset"] == "0") == (code == 22)
