"""The queue that a row goes to."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

from firearrow.client.base.message import MessageQueue
from firearrow.client.send.queue_selection import hash_index
from firearrow.spark_tools.arrow.queue_partitioner import QueueIdUse, RowRun, groups, partition_rows
from firearrow.spark_tools.base.errors import InvalidOption


def queues(topic: str) -> Sequence[MessageQueue]:
    return [MessageQueue(topic, "a", number) for number in range(4)]


def flat(stretches: Sequence[RowRun]) -> dict[tuple[str, int | None], list[int]]:
    return {
        (each.topic, None if each.queue is None else each.queue.queue_id): each.rows.tolist()
        for each in stretches
    }


def placed_in(
    message_filter: QueueIdUse = QueueIdUse.EXACT, topic: str | None = "T", **columns: pa.Array
) -> object:
    return flat(list(partition_rows(pa.record_batch(columns), topic, queues, message_filter)))


def test_rows_without_a_queue_stay_together_in_their_order() -> None:
    assert placed_in(body=["a", "b", "c"]) == {("T", None): [0, 1, 2]}


def test_rows_go_to_the_queue_of_their_id_in_their_order() -> None:
    assert placed_in(queueId=[1, 0, 1, None]) == {("T", 1): [0, 2], ("T", 0): [1], ("T", None): [3]}


def test_an_id_goes_before_a_sharding_key_and_equal_keys_stay_together() -> None:
    expected = hash_index("order-7", 4)
    found = placed_in(
        queueId=pa.array([None, 0, None], pa.int32()), shardingKey=["order-7", "order-7", "order-7"]
    )
    assert found == {("T", expected): [0, 2], ("T", 0): [1]} if expected else {("T", 0): [0, 1, 2]}


@pytest.mark.parametrize("key", ["polygenelubricants", "a", "Ünïcode 😀", ""])
def test_a_sharding_key_chooses_what_javas_client_chooses(key: str) -> None:
    """The first hashes to the least integer, whose absolute value is no Java integer."""
    assert placed_in(shardingKey=[key]) == {("T", hash_index(key, 4)): [0]}


def test_topics_of_a_column_are_distinguished() -> None:
    batch = pa.record_batch({"topic": ["B", "A", "B"], "queueId": [0, 0, 1]})
    assert flat(list(partition_rows(batch, None, queues))) == {("B", 0): [0], ("B", 1): [2], ("A", 0): [1]}
    assert flat(list(partition_rows(batch, "C", queues))) == {("C", 0): [0, 1], ("C", 1): [2]}


def test_a_row_without_a_topic_is_refused() -> None:
    with pytest.raises(InvalidOption, match="column topic: a row has null"):
        list(partition_rows(pa.record_batch({"topic": ["A", None]}), None, queues))


@pytest.mark.parametrize("wrong", [4, -1, 70000, 1 << 40])
def test_a_queue_that_is_not_there_is_an_error_unless_the_option_says_otherwise(wrong: int) -> None:
    with pytest.raises(InvalidOption, match=f"T has no writable queue {wrong}, only 0, 1, 2, 3; set"):
        placed_in(queueId=[wrong])
    assert placed_in(QueueIdUse.MODULO, queueId=[wrong]) == {("T", wrong % 4): [0]}
    assert placed_in(QueueIdUse.ANY, queueId=[wrong]) == {("T", None): [0]}


def test_groups_are_complete_and_ascending() -> None:
    codes = np.random.default_rng(1).integers(-1, 5, 1000)
    found = dict(groups(codes))
    assert sorted(found) == [-1, 0, 1, 2, 3, 4]
    assert all((codes[rows] == code).all() and (np.diff(rows) > 0).all() for code, rows in found.items())
    assert sum(map(len, found.values())) == 1000
    assert list(groups(codes[:0])) == []


def test_a_queue_is_looked_for_at_the_broker_of_the_same_name_first() -> None:
    def two(topic: str) -> Sequence[MessageQueue]:
        return [
            MessageQueue(topic, broker, number)
            for broker, most in (("a", 4), ("b", 2))
            for number in range(most)
        ]

    def found(message_filter: QueueIdUse, **columns: Sequence[int | str | None]) -> list[tuple[str, int]]:
        by_row: dict[int, tuple[str, int]] = {}
        for stretch in partition_rows(pa.record_batch(columns), "T", two, message_filter):
            assert stretch.queue is not None
            by_row |= dict.fromkeys(
                stretch.rows.tolist(), (stretch.queue.broker_name, stretch.queue.queue_id)
            )
        return [by_row[row] for row in range(len(by_row))]

    ids, names = [1, 1, 3, 3, 0], ["a", "b", "a", "b", None]
    exact = found(QueueIdUse.EXACT, queueId=ids, brokerName=names)
    assert exact[:4] == [("a", 1), ("b", 1), ("a", 3), ("a", 3)]
    modulo = found(QueueIdUse.MODULO, queueId=ids, brokerName=names)
    assert modulo[:4] == [("a", 1), ("b", 1), ("a", 3), ("b", 1)]
    assert found(QueueIdUse.EXACT, queueId=[1, 0]) == [("a", 1), ("a", 0)]
    strangers = found(QueueIdUse.EXACT, queueId=[0] * 50, brokerName=[f"other-{n % 25}" for n in range(50)])
    assert strangers[:25] == strangers[25:]
    assert {name for name, _ in strangers} == {"a", "b"}
