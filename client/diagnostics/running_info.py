"""The running info of a consumer (307, `mqadmin consumerStatus`): options, queues, statistics, stacks.

The fields are those of Java's ConsumerRunningInfo; tools use them to find blocked queues and different
subscriptions. Reads only. Event loop only.
"""

import asyncio
import math
import sys
import threading
import time
import traceback
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from firearrow._native.wire.codes import PROTOCOL_VERSION
from firearrow.client.base.errors import OffsetUnknown
from firearrow.client.base.message import MessageQueue
from firearrow.client.base.options import MIB, ClientOptions, PullConsumerOptions, PushConsumerOptions
from firearrow.client.diagnostics.stats import ConsumerStats
from firearrow.client.rebalance.allocate_strategies import name_of, strategy_of
from firearrow.client.rebalance.offset_store import NOT_FOUND, OffsetStore, ReadOffset
from firearrow.client.rebalance.process_queue import ProcessQueue
from firearrow.client.rebalance.subscription import Subscription
from firearrow.client.remoting.client_instance import ClientInstance

VERSION_TEXT = f"V5_{(PROTOCOL_VERSION - 413) // 20}_{(PROTOCOL_VERSION - 413) % 20 // 2}"
"""Java's name of the version that we announce: V5_5_0."""
TASKS_MAX, FRAMES_MAX = 200, 50
Queues = Mapping[MessageQueue, ProcessQueue]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningConsumer:
    """The state of a consumer. `passive`: it is a push consumer (CONSUME_PASSIVELY)."""

    instance: ClientInstance
    group: str
    options: PushConsumerOptions | PullConsumerOptions
    passive: bool
    started_ms: int
    subscriptions: Iterable[Subscription]
    table: Queues
    offsets: OffsetStore
    pop_table: Queues = field(default_factory=dict)
    stats: ConsumerStats | None = None
    notes: Mapping[str, str] = field(default_factory=dict)


async def running_info(running: RunningConsumer, *, stacks: bool = False) -> dict[str, object]:
    """The JSON object of the answer to 307. `stacks`: include the stacks of all threads and tasks."""
    subscriptions = {subscription.topic: subscription for subscription in running.subscriptions}
    clocks = _ClockPair()
    queues = {
        queue: _pulled(running.table[queue], await _committed(running.offsets, queue), clocks)
        for queue in sorted(running.table)
        if queue in running.table  # the table may have changed during the await
    }
    info: dict[str, object] = {
        "mqPopTable": {
            queue: _popped(running.pop_table[queue], clocks) for queue in sorted(running.pop_table)
        },
        "mqTable": queues,
        "properties": properties(running),
        "statusTable": {
            topic: running.stats.status(topic).json()
            for topic in sorted(subscriptions)
            if running.stats is not None
        },
        "subscriptionSet": [subscriptions[topic].heartbeat_json() for topic in sorted(subscriptions)],
        "userConsumerInfo": dict(running.notes),
    }
    if stacks:
        info["jstack"] = stack_dump()
    return info


def properties(running: RunningConsumer) -> dict[str, str]:
    """Options by the names of Java's getters, all as strings, durations in ms. Contains no secrets."""
    options, instance = running.options, running.instance
    values: dict[str, object] = {
        "PROP_CLIENT_VERSION": VERSION_TEXT,
        "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY" if running.passive else "CONSUME_ACTIVELY",
        "PROP_CONSUMEORDERLY": False,
        "PROP_CONSUMER_START_TIMESTAMP": running.started_ms,
        "PROP_NAMESERVER_ADDR": "".join(f"{address};" for address in instance.name_servers.addresses),
        "PROP_THREADPOOL_CORE_SIZE": 1,
        "allocateMessageQueueStrategy": name_of(strategy_of(options.allocate)),
        "consumeFromWhere": options.from_where.value,
        "consumeTimestamp": options.from_time.strftime("%Y%m%d%H%M%S"),
        "consumerGroup": running.group,
        "messageModel": options.model.value,
        "pullThresholdForQueue": options.queue_messages_max,
        "pullThresholdSizeForQueue": options.queue_bytes_max // MIB,
        "pullBatchSize": options.pull_batch,
    }
    values |= _client_properties(instance.options)
    if isinstance(options, PushConsumerOptions):
        values |= _push_properties(options)
    else:
        values |= _pull_properties(options)
    return {name: _text(value) for name, value in sorted(values.items())}


def _client_properties(options: ClientOptions) -> dict[str, object]:
    return {
        "heartbeatBrokerInterval": _ms(options.heartbeat_s),
        "instanceName": options.instance_name or options.own_name,
        "language": "PYTHON",
        "mqClientApiTimeout": _ms(options.api_timeout_s),
        "namespace": options.namespace or "",
        "namespaceV2": options.namespace_v2 or "",
        "namesrvAddr": options.name_server,
        "persistConsumerOffsetInterval": _ms(options.persist_offsets_s),
        "pollNameServerInterval": _ms(options.poll_name_server_s),
        "pullTimeDelayMillsWhenException": _ms(options.exception_delay_s),
        "unitName": options.unit_name or "",
        "useHeartbeatV2": options.heartbeat_v2,
        "useTLS": bool(options.tls),
        "vipChannelEnabled": options.vip_channel,
    }


def _push_properties(options: PushConsumerOptions) -> dict[str, object]:
    return {
        "PROP_CONSUMEORDERLY": options.orderly,
        "PROP_THREADPOOL_CORE_SIZE": options.threads,
        "clientRebalance": options.client_rebalance,
        "consumeConcurrentlyMaxSpan": options.span_max,
        "consumeMessageBatchMaxSize": options.batch_size,
        "consumeThreadMax": options.threads,
        "consumeThreadMin": options.threads,
        "consumeTimeout": round(options.consume_timeout_s / 60),
        "maxReconsumeTimes": options.max_reconsume_times,
        "popBatchNums": options.pop_batch,
        "popInvisibleTime": _ms(options.pop_invisible_s),
        "popThresholdForQueue": options.pop_queue_max,
        "postSubscriptionWhenPull": options.post_subscription,
        "pullInterval": _ms(options.pull_interval_s),
        "pullThresholdForTopic": -1 if options.topic_messages_max is None else options.topic_messages_max,
        "pullThresholdSizeForTopic": -1
        if options.topic_bytes_max is None
        else options.topic_bytes_max // MIB,
        "suspendCurrentQueueTimeMillis": _ms(options.suspend_s),
    }


def _pull_properties(options: PullConsumerOptions) -> dict[str, object]:
    return {
        "autoCommit": options.auto_commit,
        "autoCommitIntervalMillis": _ms(options.auto_commit_s),
        "brokerSuspendMaxTimeMillis": _ms(options.suspend_s),
        "consumeMaxSpan": options.span_max,
        "consumerTimeoutMillisWhenSuspend": _ms(options.suspend_timeout_s),
        "pollTimeoutMillis": _ms(options.poll_timeout_s),
        "pullThresholdForAll": options.cached_max,
        "topicMetadataCheckIntervalMillis": _ms(options.check_queues_s),
    }


def _pulled(queue: ProcessQueue, committed: int, clocks: "_ClockPair") -> dict[str, object]:
    waiting, taken = queue.waiting_range(), queue.taken_range()
    taken_count = queue.taken_count
    return {
        "cachedMsgCount": queue.message_count - taken_count,
        "cachedMsgMaxOffset": waiting[1] if waiting else 0,
        "cachedMsgMinOffset": waiting[0] if waiting else 0,
        "cachedMsgSizeInMiB": queue.message_bytes // MIB,
        "commitOffset": committed,
        "droped": queue.dropped,
        "lastConsumeTimestamp": clocks.wall_ms(queue.last_consume_s),
        "lastLockTimestamp": clocks.wall_ms(queue.last_lock_s),
        "lastPullTimestamp": clocks.wall_ms(queue.last_pull_s),
        "locked": queue.locked,
        "transactionMsgCount": taken_count,
        "transactionMsgMaxOffset": taken[1] if taken else 0,
        "transactionMsgMinOffset": taken[0] if taken else 0,
        "tryUnlockTimes": queue.try_unlock_times,
    }


def _popped(queue: ProcessQueue, clocks: "_ClockPair") -> dict[str, object]:
    return {
        "droped": queue.dropped,
        "lastPopTimestamp": clocks.wall_ms(queue.last_pop_s),
        "waitAckCount": queue.unacknowledged,
    }


async def _committed(offsets: OffsetStore, queue: MessageQueue) -> int:
    try:
        return await offsets.read(queue, ReadOffset.MEMORY_FIRST)
    except OffsetUnknown:
        return NOT_FOUND


class _ClockPair:
    """The current time on both clocks; converts monotonic seconds to milliseconds since 1970."""

    def __init__(self) -> None:
        self._wall_ms, self._monotonic_s = time.time() * 1000, time.monotonic()

    def wall_ms(self, monotonic_s: float) -> int:
        """Rounded down: never later than now."""
        return math.floor(self._wall_ms - (self._monotonic_s - monotonic_s) * 1000)


def stack_dump() -> str:
    """The stacks of all threads and of the running loop's tasks, each limited to its innermost frames."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    lines = []
    for ident, frame in sys._current_frames().items():
        lines.append(f"Thread {names.get(ident, '?')} ({ident}):\n")
        lines += traceback.format_stack(frame)[-FRAMES_MAX:]
    tasks = sorted(asyncio.all_tasks(), key=lambda task: task.get_name())
    for task in tasks[:TASKS_MAX]:
        lines.append(f"Task {task.get_name()}:\n")
        for frame in task.get_stack(limit=FRAMES_MAX):
            lines += traceback.format_stack(frame, limit=1)
    if len(tasks) > TASKS_MAX:
        lines.append(f"and {len(tasks) - TASKS_MAX} more tasks\n")
    return "".join(lines)


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
