"""What operators see of a consumer: all that Java reports, and no secret."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import datetime

from firearrow._native.protocol import fastjson
from firearrow._native.wire.codes import PROTOCOL_VERSION
from firearrow._native.wire.command import RemotingCommand
from firearrow.client.base.errors import OffsetUnknown
from firearrow.client.base.message import MessageQueue
from firearrow.client.base.options import (
    MIB,
    ClientOptions,
    Credentials,
    PullConsumerOptions,
    PushConsumerOptions,
)
from firearrow.client.diagnostics.inspection import register_inspection_handlers
from firearrow.client.diagnostics.running_info import (
    TASKS_MAX,
    VERSION_TEXT,
    RunningConsumer,
    running_info,
    stack_dump,
)
from firearrow.client.diagnostics.stats import ConsumerStats
from firearrow.client.rebalance.offset_store import OffsetTable, ReadOffset
from firearrow.client.rebalance.process_queue import ProcessQueue
from firearrow.client.rebalance.subscription import Subscription
from tests.client.records import received
from tests.client.rounds import FakeInstance, queues_of

JAVA_QUEUE_FIELDS = {
    "cachedMsgCount",
    "cachedMsgMaxOffset",
    "cachedMsgMinOffset",
    "cachedMsgSizeInMiB",
    "commitOffset",
    "droped",
    "lastConsumeTimestamp",
    "lastLockTimestamp",
    "lastPullTimestamp",
    "locked",
    "transactionMsgCount",
    "transactionMsgMaxOffset",
    "transactionMsgMinOffset",
    "tryUnlockTimes",
}
JAVA_STATUS_FIELDS = {
    "consumeFailedMsgs",
    "consumeFailedTPS",
    "consumeOKTPS",
    "consumeRT",
    "pullRT",
    "pullTPS",
}
JAVA_PARTS = {"mqPopTable", "mqTable", "properties", "statusTable", "subscriptionSet", "userConsumerInfo"}
"""All as Java 5.5.0 writes them."""
QUEUE, OTHER = queues_of("T", 2)


class Known(OffsetTable):
    async def read(self, queue: MessageQueue, how: ReadOffset) -> int:
        assert how is ReadOffset.MEMORY_FIRST
        if queue == OTHER:
            raise OffsetUnknown("no broker")
        return self.cached_offset(queue)


def running(**more: object) -> RunningConsumer:
    instance = FakeInstance({})
    instance.options = ClientOptions(
        name_server="names:1", credentials=Credentials("key", "very secret", security_token="token, too")
    )
    held, popped, stats = ProcessQueue(), ProcessQueue(), ConsumerStats()
    held.put(received(QUEUE, (5, 6, 8)))
    held.take(1)
    held.message_bytes = 3 * MIB
    held.locked, held.last_lock_s = True, time.monotonic() - 100
    popped.unacknowledged, popped.dropped = 3, True
    stats.succeeded("T", 3)
    offsets = Known()
    offsets.update(QUEUE, 5)
    chosen: dict[str, object] = {
        "instance": instance,
        "group": "group",
        "options": PushConsumerOptions(orderly=True, threads=7),
        "passive": True,
        "started_ms": 1234,
        "subscriptions": [Subscription.of("T", "b || a"), Subscription.of("%RETRY%group")],
        "table": {OTHER: ProcessQueue(), QUEUE: held},
        "pop_table": {OTHER: popped},
        "offsets": offsets,
        "stats": stats,
        "notes": {"mine": "yours"},
    }
    return RunningConsumer(**chosen | more)  # type: ignore[arg-type]


async def test_all_of_java_s_fields_are_reported_under_java_s_names() -> None:
    info = await running_info(running())
    assert set(info) == JAVA_PARTS
    table = info["mqTable"]
    assert isinstance(table, dict)
    assert list(table) == [QUEUE, OTHER]
    assert all(set(row) == JAVA_QUEUE_FIELDS for row in table.values())
    now_ms = time.time() * 1000
    row = table[QUEUE]
    assert now_ms - 101_000 < row.pop("lastLockTimestamp") < now_ms - 99_000
    assert now_ms - 1000 < row.pop("lastPullTimestamp") <= now_ms
    assert now_ms - 1000 < row.pop("lastConsumeTimestamp") <= now_ms
    assert row == {
        "cachedMsgCount": 2,
        "cachedMsgMaxOffset": 8,
        "cachedMsgMinOffset": 6,
        "cachedMsgSizeInMiB": 3,
        "commitOffset": 5,
        "droped": False,
        "locked": True,
        "transactionMsgCount": 1,
        "transactionMsgMaxOffset": 5,
        "transactionMsgMinOffset": 5,
        "tryUnlockTimes": 0,
    }
    assert table[OTHER]["commitOffset"] == -1, "an unknown one does not keep the others from being reported"
    popped = info["mqPopTable"][OTHER]  # type: ignore[index]
    assert (popped["waitAckCount"], popped["droped"]) == (3, True)
    assert [one["topic"] for one in info["subscriptionSet"]] == ["%RETRY%group", "T"]  # type: ignore[attr-defined]
    assert info["subscriptionSet"][1]["subString"] == "b || a", "tools compare the text"  # type: ignore[index]
    assert {topic: set(one) for topic, one in info["statusTable"].items()} == {  # type: ignore[attr-defined]
        "%RETRY%group": JAVA_STATUS_FIELDS,
        "T": JAVA_STATUS_FIELDS,
    }
    assert info["userConsumerInfo"] == {"mine": "yours"}


async def test_options_are_reported_as_text_and_secrets_are_not() -> None:
    info = await running_info(running())
    properties = info["properties"]
    assert isinstance(properties, dict)
    assert all(isinstance(value, str) for value in properties.values())
    assert (
        properties.items()
        >= {
            "PROP_CLIENT_VERSION": "V5_5_0",
            "PROP_CONSUMEORDERLY": "true",
            "PROP_CONSUMER_START_TIMESTAMP": "1234",
            "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY",
            "PROP_NAMESERVER_ADDR": "names:1;",
            "PROP_THREADPOOL_CORE_SIZE": "7",
            "allocateMessageQueueStrategy": "AVG",
            "consumeThreadMax": "7",
            "consumerGroup": "group",
            "messageModel": "CLUSTERING",
            "pullThresholdSizeForQueue": "100",
            "pullThresholdForTopic": "-1",
        }.items()
    )
    datetime.strptime(properties["consumeTimestamp"], "%Y%m%d%H%M%S")
    text = fastjson.dumps(info, is_sorted=False).decode()
    assert "secret" not in text
    assert "token, too" not in text
    assert (PROTOCOL_VERSION, VERSION_TEXT) == (513, "V5_5_0")


async def test_a_pull_consumer_is_reported_as_active() -> None:
    info = await running_info(running(options=PullConsumerOptions(), passive=False))
    properties = info["properties"]
    assert isinstance(properties, dict)
    assert properties["PROP_CONSUME_TYPE"] == "CONSUME_ACTIVELY"
    assert properties["PROP_CONSUMEORDERLY"] == "false"
    assert properties["autoCommit"] == "true"
    assert "consumeThreadMax" not in properties


async def test_stacks_come_only_when_asked_for_and_have_an_end() -> None:
    async def waits_for_ever() -> None:
        await asyncio.Event().wait()

    tasks = [asyncio.create_task(waits_for_ever(), name=f"a{number:03}") for number in range(TASKS_MAX + 5)]
    await asyncio.sleep(0)
    assert "jstack" not in await running_info(running())
    text = (await running_info(running(), stacks=True))["jstack"]
    assert isinstance(text, str)
    assert "Thread MainThread" in text
    assert "Task a000" in text
    assert "waits_for_ever" in text
    assert "more tasks" in text
    assert stack_dump().count("\nTask ") == TASKS_MAX
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class Asked(FakeInstance):
    def __init__(self) -> None:
        super().__init__({})
        self.consumers: dict[str, object] = {}
        self.serves: dict[int, Callable[..., object]] = {}
        register_inspection_handlers(self)  # type: ignore[arg-type]

    def register_handler(self, code: int, handler: Callable[..., object]) -> None:
        self.serves[code] = handler

    async def ask(self, code: int, body: bytes = b"", **ext: str) -> RemotingCommand | None:
        answer = self.serves[code](RemotingCommand.request(code, ext, body), "broker:1")
        return await answer if isinstance(answer, Awaitable) else answer  # type: ignore[return-value]


class Consumer:
    def __init__(self) -> None:
        self.resets: list[object] = []

    def known_offsets(self, topic: str) -> dict[MessageQueue, int]:
        return {QUEUE: 5} if topic in ("", "T") else {}

    async def running_info(self, *, stacks: bool) -> dict[str, object]:
        return {"mqTable": {QUEUE: {"stacks": stacks}}}

    async def reset_offsets(self, topic: str, offsets: dict[MessageQueue, int]) -> None:
        self.resets.append((topic, offsets))


async def test_each_question_finds_its_consumer() -> None:
    instance, consumer = Asked(), Consumer()
    instance.consumers["group"] = consumer
    status = await instance.ask(221, group="group", topic="T")
    assert status is not None
    assert fastjson.loads(status.body) == {"consumerTable": {}, "messageQueueTable": {QUEUE: 5}}
    info = await instance.ask(307, consumerGroup="group", jstackEnable="true")
    assert info is not None
    assert fastjson.loads(info.body) == {"mqTable": {QUEUE: {"stacks": True}}}
    body = fastjson.dumps({"offsetTable": {QUEUE: 3}})
    assert await instance.ask(220, body, group="group", topic="T", timestamp="0") is None
    assert consumer.resets == [("T", {QUEUE: 3})]


async def test_an_unknown_group_is_an_error() -> None:
    instance = Asked()
    info = await instance.ask(307, consumerGroup="nobody")
    assert info is not None
    assert (info.code, info.remark) == (1, "The Consumer Group <nobody> not exist in this consumer")
    status = await instance.ask(221, group="nobody")
    assert status is not None
    assert fastjson.loads(status.body)["messageQueueTable"] == {}
    assert await instance.ask(220, group="nobody", topic="T") is None
