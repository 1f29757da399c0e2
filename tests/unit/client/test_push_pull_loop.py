"""The pull loop: every check before a pull and every answer to one, with Java's order, strictness and delays."""

import asyncio
import logging
from dataclasses import replace

import pytest

from firearrow.client.base.errors import BrokerError, OffsetUnknown, RequestTimeout, RocketMQError
from firearrow.client.base.message import MessageQueue
from firearrow.client.base.options import MIB, MessageModel, PushConsumerOptions
from firearrow.client.base.state_log import QUIET_S
from firearrow.client.pull.pull_request import PullQuery, PullResult, PullStatus
from firearrow.client.pull.push_pull_loop import FlowControlLimits, PullLoop
from firearrow.client.rebalance.process_queue import ProcessQueue
from firearrow.client.rebalance.start_offset import PullRequest
from tests.client.loop_bench import QUEUE, RETRY_QUEUE, Bench, found, nothing
from tests.client.records import received
from tests.support.eventually import eventually_async

# ---- before a pull ----


async def test_a_dropped_queue_is_pulled_no_more() -> None:
    bench = Bench()
    bench.process_queue.dropped = True
    await bench.run()
    assert (bench.pulls, bench.slept, bench.process_queue.last_pull_s) == ([], [], 0)


async def test_a_consumer_that_does_not_run_waits_as_after_an_error() -> None:
    bench = Bench()
    bench.state_running = False
    await bench.run()
    assert (bench.pulls, bench.slept) == ([], [0.9])


async def test_a_paused_one_waits_a_second_and_does_not_look_dead() -> None:
    bench = Bench()
    bench.loop.paused = True
    await bench.run()
    assert (bench.pulls, bench.slept, bench.process_queue.last_pull_s) == ([], [1.0], 1000.0)


@pytest.mark.parametrize(("held", "slept"), [(3, []), (4, [0.05])])
async def test_messages_beyond_the_threshold_hold_pulls_back(held: int, slept: list[float]) -> None:
    bench = Bench(PushConsumerOptions(queue_messages_max=3))
    bench.process_queue.put(received(QUEUE, range(held)))
    await bench.run()
    assert bench.slept == slept
    assert len(bench.pulls) == (0 if slept else 1)


@pytest.mark.parametrize(("held_bytes", "slept"), [(2 * MIB - 1, []), (2 * MIB, [0.05])])
async def test_bytes_count_in_whole_mebibytes(held_bytes: int, slept: list[float]) -> None:
    bench = Bench(PushConsumerOptions(queue_bytes_max=MIB))
    bench.process_queue.put(received(QUEUE, [1], bytes(held_bytes)))
    await bench.run()
    assert bench.slept == slept


@pytest.mark.parametrize(("last", "slept"), [(2000, []), (2001, [0.05])])
async def test_a_span_beyond_the_threshold_holds_pulls_back(last: int, slept: list[float]) -> None:
    bench = Bench()
    bench.process_queue.put(received(QUEUE, [0, last]))
    await bench.run()
    assert bench.slept == slept


async def test_in_order_the_span_does_not_matter_but_the_lock_does() -> None:
    bench = Bench(PushConsumerOptions(orderly=True))
    bench.process_queue.put(received(QUEUE, [0, 9000]))
    await bench.run()
    assert (bench.pulls, bench.slept) == ([], [0.9])


async def test_the_first_pull_under_a_lock_starts_where_the_store_says_even_if_that_is_lower() -> None:
    bench = Bench(PushConsumerOptions(orderly=True))
    bench.process_queue.locked, bench.start_offset = True, 4
    bench.answers = [found(6, *received(QUEUE, [4, 5]))]
    await bench.run()
    assert [pull.offset for pull in bench.pulls] == [4, 6]
    assert bench.request.previously_locked


@pytest.mark.parametrize("start", [-1, OffsetUnknown("nobody answers")])
async def test_without_a_start_a_locked_queue_waits(start: int | Exception) -> None:
    bench = Bench(PushConsumerOptions(orderly=True))
    bench.process_queue.locked, bench.start_offset = True, start
    await bench.run()
    assert (bench.pulls, bench.slept, bench.request.previously_locked) == ([], [0.9], False)


async def test_a_topic_that_is_subscribed_no_more_waits() -> None:
    bench = Bench()
    bench.subscriptions.clear()
    await bench.run()
    assert (bench.pulls, bench.slept) == ([], [0.9])


async def test_the_checks_come_in_their_order() -> None:
    """Not running comes before paused, paused before full, full before the lock."""
    bench = Bench(PushConsumerOptions(orderly=True, queue_messages_max=1))
    bench.process_queue.put(received(QUEUE, [1, 2]))
    bench.state_running, bench.loop.paused, bench.sleeps_max = False, True, 4
    slept = bench._sleep

    async def next_state(seconds: float) -> None:
        await slept(seconds)
        if len(bench.slept) == 1:
            bench.state_running = True
        elif len(bench.slept) == 2:
            bench.loop.paused = False
        elif len(bench.slept) == 3:
            bench.process_queue.clear()

    bench.loop._context.sleep = next_state
    await bench.run()
    assert bench.slept == [0.9, 1.0, 0.05, 0.9]


async def test_a_slow_consumer_is_one_line_and_so_is_its_end(caplog: pytest.LogCaptureFixture) -> None:
    """However often its queues are full, and not full in between."""
    bench = Bench(PushConsumerOptions(queue_messages_max=1))
    now = [0.0]
    bench.loop = PullLoop(replace(bench.loop._context, clock=lambda: now[0]))
    request = PullRequest(QUEUE, bench.process_queue, 0)
    with caplog.at_level(logging.INFO, "firearrow.client"):
        for _ in range(3000):
            bench.process_queue.put(received(QUEUE, [1, 2]))
            assert bench.loop._full(request)
            bench.process_queue.clear()
            now[0] += 1
            assert not bench.loop._full(request)
        [line] = caplog.messages
        assert "pulling pauses, too many messages are cached: 2 messages" in line
        now[0] += QUIET_S
        assert not bench.loop._full(request)
        assert caplog.messages[1:] == [
            "topic orders is consumed as fast as it is pulled again: pulling paused 3000 times"
        ]
        bench.process_queue.put(received(QUEUE, [1, 2]))
        assert bench.loop._full(request)
    assert len(caplog.messages) == 3
    assert bench.loop.times_full == 3001


# ---- the pull ----


async def test_a_pull_asks_for_what_the_options_say() -> None:
    bench = await Bench(
        PushConsumerOptions(pull_batch=7, pull_batch_bytes=99, pull_suspend_s=3, pull_timeout_s=4)
    ).run()
    pull = bench.pulls[0]
    assert (pull.queue, pull.offset, pull.batch, pull.batch_bytes) == (QUEUE, 10, 7, 99)
    assert (pull.suspend_s, pull.timeout_s, pull.post_expression, pull.lite) == (3, 4, False, False)
    assert pull.subscription is bench.subscriptions["orders"]


@pytest.mark.parametrize(("cached_offset", "commit_offset"), [(None, None), (0, None), (1, 1)])
async def test_offsets_above_nought_are_committed_with_each_pull(
    cached_offset: int | None, commit_offset: int | None
) -> None:
    bench = Bench()
    if cached_offset is not None:
        bench.offsets.update(QUEUE, cached_offset)
    await bench.run()
    assert bench.pulls[0].commit == commit_offset


async def test_broadcasting_commits_no_offset() -> None:
    bench = Bench(PushConsumerOptions(model=MessageModel.BROADCASTING))
    bench.offsets.update(QUEUE, 9)
    await bench.run()
    assert bench.pulls[0].commit is None


# ---- its answer ----


async def test_found_messages_go_to_the_service_and_the_next_pull_follows_at_once() -> None:
    bench = Bench()
    messages = received(QUEUE, [10, 11])
    bench.answers = [found(12, *messages)]
    await bench.run()
    assert [pull.offset for pull in bench.pulls] == [10, 12]
    assert bench.service.submitted == [(messages, True)]
    assert bench.process_queue.message_count == 2
    assert bench.process_queue.backlog == 89
    assert (bench.stats.messages, bench.slept) == ([2], [])


async def test_a_pull_interval_is_kept_between_pulls_that_bring_something() -> None:
    bench = Bench(PushConsumerOptions(pull_interval_s=0.3))
    bench.sleeps_max = 2
    bench.answers = [found(12, *received(QUEUE, [10, 11])), found(13), found(14, *received(QUEUE, [13]))]
    await bench.run()
    assert bench.slept == [0.3, 0.3]
    assert len(bench.pulls) == 3


async def test_what_is_found_and_not_wanted_moves_on_at_once_and_so_does_the_offset() -> None:
    bench = Bench()
    bench.answers = [found(12)]
    await bench.run()
    assert [pull.offset for pull in bench.pulls] == [10, 12]
    assert (bench.service.submitted, bench.slept) == ([], [])
    assert bench.offsets.snapshot() == {QUEUE: 12}
    assert len(bench.stats.took) == 1


@pytest.mark.parametrize("status", [PullStatus.NO_NEW_MSG, PullStatus.NO_MATCHED_MSG])
async def test_nothing_for_us_moves_the_stored_offset_up_if_nothing_is_held(status: PullStatus) -> None:
    bench = Bench()
    bench.answers = [nothing(status, 50), nothing(status, 40)]
    await bench.run()
    assert [pull.offset for pull in bench.pulls] == [10, 50, 40]
    assert bench.offsets.snapshot() == {QUEUE: 50}, "it only grows"
    assert bench.slept == []


@pytest.mark.parametrize("status", [PullStatus.NO_NEW_MSG, PullStatus.NO_MATCHED_MSG])
async def test_nothing_for_us_leaves_the_stored_offset_while_messages_are_held(status: PullStatus) -> None:
    bench = Bench()
    bench.process_queue.put(received(QUEUE, [5]))
    bench.answers = [nothing(status, 50)]
    await bench.run()
    assert bench.offsets.snapshot() == {}


async def test_an_illegal_offset_ends_the_queue_and_calls_for_repair() -> None:
    bench = Bench()
    bench.answers = [nothing(PullStatus.OFFSET_ILLEGAL, 77)]
    await bench.run()
    assert bench.process_queue.dropped
    assert bench.repaired == [77]
    assert (len(bench.pulls), bench.slept) == (1, [])


@pytest.mark.parametrize(
    ("error", "slept"),
    [
        (BrokerError(215, "slower", "broker-a"), 0.02),
        (BrokerError(25, "not latest", "broker-a"), 0.9),
        (BrokerError(24, "no subscription", "broker-a"), 0.9),
        (BrokerError(2, "busy", "broker-a"), 0.9),
        (RequestTimeout("no answer"), 0.9),
    ],
)
async def test_errors_wait_and_keep_the_offset(error: RocketMQError, slept: float) -> None:
    bench = Bench()
    bench.sleeps_max = 2
    bench.answers = [error]
    await bench.run()
    assert bench.slept == [slept]
    assert [pull.offset for pull in bench.pulls] == [10, 10]


@pytest.mark.parametrize(("queue", "lines"), [(QUEUE, 1), (RETRY_QUEUE, 0)])
async def test_errors_of_retry_topics_are_not_logged(
    queue: MessageQueue, lines: int, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(queue=queue)
    bench.answers = [BrokerError(17, "no topic", "broker-a")]
    with caplog.at_level(logging.INFO, "firearrow.client"):
        await bench.run()
    assert len(caplog.records) == lines


async def test_a_broker_that_fails_again_and_again_is_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench()
    bench.sleeps_max = 99
    bench.answers = [
        RequestTimeout("1"),
        RequestTimeout("2"),
        found(10),
        RequestTimeout("3"),
        RequestTimeout("4"),
    ]
    with caplog.at_level(logging.INFO, "firearrow.client"):
        await bench.run()
    assert [record.getMessage()[-1] for record in caplog.records] == ["1"], (
        "an answer in between ends nothing"
    )
    assert bench.slept == [0.9] * 4


async def test_an_answer_that_goes_back_is_logged_and_obeyed(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.answers = [found(9, *received(QUEUE, [8]))]
    with caplog.at_level(logging.INFO, "firearrow.client"):
        await bench.run()
    assert "goes back" in caplog.text
    assert bench.pulls[1].offset == 9


async def test_what_comes_after_the_queue_was_dropped_counts_no_more() -> None:
    bench = Bench()
    bench.answers = [found(12, *received(QUEUE, [10, 11]))]
    bench.on_pull = lambda: setattr(bench.process_queue, "dropped", True)
    await bench.run()
    assert bench.service.submitted == []
    assert bench.request.next_offset == 10


async def test_a_queue_that_failed_in_us_stops_so_that_the_watchdog_sees_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench()
    bench.answers = [ZeroDivisionError()]
    bench.loop.begin(bench.request)
    await eventually_async(lambda: bench.loop.queues == 0)
    assert "pulling of a queue stopped" in caplog.text
    assert bench.process_queue.pull_expired(1121)


async def test_stopping_ends_pulls_on_their_way() -> None:
    bench = Bench()
    never = asyncio.Event()

    async def hang(seconds: float) -> None:
        await never.wait()

    bench.loop._context.sleep = hang
    bench.loop.paused = True
    bench.loop.begin(bench.request)
    await asyncio.sleep(0)
    assert bench.loop.queues == 1
    await bench.loop.stop()
    assert bench.loop.queues == 0


# ---- thresholds of topics ----


def test_thresholds_of_topics_are_divided_among_all_queues_and_overwrite() -> None:
    options = PushConsumerOptions(topic_messages_max=100, topic_bytes_max=10 * MIB)
    thresholds = FlowControlLimits.of(options)
    assert (thresholds.messages_max, thresholds.bytes_max) == (1000, 100 * MIB)
    thresholds.spread(options, 8)
    assert (thresholds.messages_max, thresholds.bytes_max) == (12, MIB)
    thresholds.spread(options, 1000)
    assert (thresholds.messages_max, thresholds.bytes_max) == (1, MIB)


def test_without_thresholds_of_topics_those_of_queues_stay() -> None:
    options = PushConsumerOptions(queue_messages_max=5)
    thresholds = FlowControlLimits.of(options)
    thresholds.spread(options, 8)
    assert (thresholds.messages_max, thresholds.bytes_max, thresholds.span_max) == (5, 100 * MIB, 2000)


async def test_a_thousand_queues_are_a_thousand_idle_tasks() -> None:
    bench, never = Bench(), asyncio.Event()
    waiting = 0

    async def hold(pull: PullQuery) -> PullResult:
        nonlocal waiting
        waiting += 1
        await never.wait()
        return found(0)

    bench.pull = hold  # type: ignore[method-assign]
    for number in range(1000):
        bench.loop.begin(PullRequest(MessageQueue("orders", "broker-a", number), ProcessQueue(), 0))
    await eventually_async(lambda: waiting == 1000)
    await bench.loop.stop()


# ---- what was left out: by brokers, or here by the check of tags or a FilterHook ----


@pytest.mark.parametrize("orderly", [False, True])
async def test_unfinished_messages_hold_back_the_offset_and_pass_the_rest_when_they_are_finished(
    *, orderly: bool
) -> None:
    bench = Bench()
    messages = received(QUEUE, [12, 14])
    bench.answers = [found(20, *messages), found(30), nothing(PullStatus.NO_MATCHED_MSG, 40)]
    await bench.run()
    queue = bench.process_queue
    assert bench.offsets.cached_offset(QUEUE) == -1
    if orderly:
        queue.take(1)
        assert queue.commit() == 13
        queue.take(1)
        assert queue.commit() == 40
    else:
        assert queue.remove(messages[:1]) == 14
        assert queue.remove(messages[1:]) == 40


# ---- paused while the broker holds a pull ----


async def test_what_a_pull_brings_after_the_pause_is_pulled_again_after_it() -> None:
    bench = Bench()
    bench.sleeps_max = 3
    bench.answers = [found(12, *received(QUEUE, [10, 11]))] * 2

    def pause() -> None:
        bench.loop.paused = len(bench.pulls) == 1

    slept = bench._sleep

    async def resume(seconds: float) -> None:
        assert bench.service.submitted == []
        bench.loop.paused = False
        await slept(seconds)

    bench.on_pull, bench.loop._context.sleep = pause, resume
    await bench.run()
    assert [pull.offset for pull in bench.pulls[:2]] == [10, 10]
    assert [len(messages) for messages, _ in bench.service.submitted] == [2]
