"""Verification: missing, different and duplicate messages are found by source offset, or by unique key."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from firearrow.client.base.message import MessageQueue
from firearrow.spark_tools.base.filter import MessageFilter
from firearrow.spark_tools.base.source import QueueRange
from firearrow.spark_tools.jobs.checkpoint import ProgressFiles, Slice, SliceProgress
from firearrow.spark_tools.jobs.queue_mapping import queue_text
from firearrow.spark_tools.jobs.verify_task import VerifyTask, compare, verification_counts
from firearrow.spark_tools.offline.store_source import StoreSource
from tests.spark.stores import BROKER, KnownStore

PART = QueueRange(MessageQueue("T", "b", 0), 0, 100)
Pair = tuple[int, int]


def compared(wanted: list[Pair], found: list[Pair]) -> SliceProgress:
    mark = SliceProgress(0, 100)
    compare(PART, columns(wanted), columns(found), mark)
    return mark


def columns(pairs: list[Pair]) -> tuple[np.ndarray, np.ndarray]:  # type: ignore[type-arg]
    return np.array([offset for offset, _ in pairs], np.int64), np.array([crc for _, crc in pairs], np.int32)


pairs = st.dictionaries(st.integers(0, 99), st.integers(-5, 5), max_size=40)


@given(pairs, pairs)
def test_counts_are_those_of_a_plain_comparison(wanted: dict[int, int], found: dict[int, int]) -> None:
    mark = compared(list(wanted.items()), list(found.items()))
    assert mark.counts == {
        "messages": len(wanted),
        "missing": len(wanted.keys() - found.keys()),
        "wrong": sum(found[offset] != crc for offset, crc in wanted.items() if offset in found),
        "copies": 0,
    }


def test_each_fault_is_named() -> None:
    mark = compared([(1, 7), (2, 8), (3, 9)], [(1, 7), (1, 7), (3, 0)])
    assert mark.counts == {"messages": 3, "missing": 1, "wrong": 1, "copies": 1}
    assert mark.detail["named"] == ["T@b:0[2..3) is missing", "T@b:0[3..4) has another body"]


def test_a_copy_with_another_body_is_wrong() -> None:
    assert compared([(1, 7)], [(1, 7), (1, 8)]).counts == {
        "messages": 1,
        "missing": 0,
        "wrong": 1,
        "copies": 1,
    }


def test_what_is_outside_of_the_slice_is_not_read() -> None:
    assert compared([(1, 7)], [(1, 7), (500, 8)]).counts == {
        "messages": 1,
        "missing": 0,
        "wrong": 0,
        "copies": 0,
    }


@pytest.mark.parametrize(("gone", "missing"), [(0, 0), (1, 1), (60, 60)])
def test_by_key_a_store_is_like_itself_but_for_what_is_not_there(
    store: KnownStore, tmp_path: Path, gone: int, missing: int
) -> None:
    """The store against itself, with the last messages of the target hidden."""
    queue = MessageQueue("Readings", BROKER, 0)
    part = QueueRange(queue, 0, len(store.of("Readings")))
    for name in ("forwarded", "verified"):
        (tmp_path / name).mkdir()
    forwarded, verified = ProgressFiles(tmp_path / "forwarded"), ProgressFiles(tmp_path / "verified")
    forwarded.write(SliceProgress(0, part.end, {}, {"targets": {queue_text(queue): [0, part.end - gone]}}))
    message_source = StoreSource((str(store.root),))
    work = VerifyTask(
        message_source=message_source,
        message_filter=MessageFilter(),
        target=message_source,
        forwarded=forwarded,
        job="j",
        provenance=False,
    )
    work([Slice(0, part)], verified)
    found = verification_counts(verified.written(), "unique key")
    assert (found["messages"], found["missing"], found["unreadable"]) == (len(part), missing, 0)
    assert len(found["named"]) == missing


def test_a_range_of_the_target_that_is_gone_is_reported(store: KnownStore, tmp_path: Path) -> None:
    queue = MessageQueue("Readings", BROKER, 0)
    end = len(store.of("Readings"))
    for name in ("forwarded", "verified"):
        (tmp_path / name).mkdir()
    forwarded, verified = ProgressFiles(tmp_path / "forwarded"), ProgressFiles(tmp_path / "verified")
    forwarded.write(SliceProgress(0, end, {}, {"targets": {queue_text(queue): [end, end + 10]}}))
    message_source = StoreSource((str(store.root),))
    work = VerifyTask(
        message_source=message_source,
        message_filter=MessageFilter(),
        target=message_source,
        forwarded=forwarded,
        job="j",
        provenance=True,
    )
    work([Slice(0, QueueRange(queue, 0, 10))], verified)
    found = verification_counts(verified.written(), "source offset")
    assert (found["messages"], found["missing"], found["unreadable"]) == (10, 10, 10)
