"""Options of a push consumer: Java's defaults, and its ranges to the last value that is allowed."""

import pytest

from firearrow.client.base.errors import ConfigError
from firearrow.client.base.options import MIB, ConsumeFromWhere, MessageModel, PushConsumerOptions

RANGES: dict[str, tuple[float, float, float]] = {
    "threads": (1, 1000, 1),
    "batch_size": (1, 1024, 1),
    "pull_batch": (1, 1024, 1),
    "pull_batch_bytes": (1, 64 * MIB, 1),
    "pull_interval_s": (0, 65.535, 0.001),
    "pull_suspend_s": (0, 3600, 0.001),
    "span_max": (1, 65535, 1),
    "queue_messages_max": (1, 65535, 1),
    "queue_bytes_max": (MIB, 1024 * MIB, 1),
    "topic_messages_max": (1, 6553500, 1),
    "topic_bytes_max": (MIB, 102400 * MIB, 1),
    "max_reconsume_times": (-1, 2147483647, 1),
    "suspend_s": (0.01, 30, 0.001),
    "consume_timeout_s": (0.001, 86400 * 365, 0.001),
    "drain_s": (0, 86400, 0.001),
    "pop_batch": (1, 32, 1),
    "pop_invisible_s": (5, 300, 0.001),
    "pop_queue_max": (1, 65535, 1),
    "trace_batch": (1, 20, 1),
}


def options(**values: object) -> PushConsumerOptions:
    return PushConsumerOptions(**{"pull_timeout_s": 3601} | values)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", RANGES)
def test_a_value_at_either_end_is_taken_and_one_beyond_is_refused_by_name(name: str) -> None:
    least, most, step = RANGES[name]
    for value in (least, most):
        assert getattr(options(**{name: value}), name) == value
    for value in (least - step, most + step):
        with pytest.raises(ConfigError, match=name):
            options(**{name: value})


def test_the_defaults_are_javas() -> None:
    made = PushConsumerOptions()
    assert (made.model, made.from_where) == (MessageModel.CLUSTERING, ConsumeFromWhere.LAST_OFFSET)
    assert (made.threads, made.batch_size, made.pull_batch, made.pull_batch_bytes) == (20, 1, 32, 262144)
    assert (made.span_max, made.queue_messages_max, made.queue_bytes_max) == (2000, 1000, 100 * MIB)
    assert (made.topic_messages_max, made.topic_bytes_max, made.max_reconsume_times) == (None, None, -1)
    assert (made.pull_interval_s, made.pull_suspend_s, made.pull_timeout_s) == (0, 15, 30)
    assert (made.suspend_s, made.consume_timeout_s, made.allocate) == (1, 900, "AVG")
    assert (made.pop_batch, made.pop_invisible_s, made.pop_queue_max) == (32, 60, 96)
    assert made.client_rebalance
    assert not made.post_subscription


def test_an_answer_must_be_waited_for_longer_than_brokers_hold_it() -> None:
    with pytest.raises(ConfigError, match="pull_timeout_s"):
        PushConsumerOptions(pull_suspend_s=30)


@pytest.mark.parametrize("more", [{"orderly": True}, {"model": MessageModel.BROADCASTING}])
def test_brokers_assign_queues_to_concurrent_clustering_consumers_only(more: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="client_rebalance"):
        options(client_rebalance=False, **more)
