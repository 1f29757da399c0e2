"""LiveReader: topics, bounds and records of live brokers. Commits nothing, joins no group. One thread.

The broker filters by tags, or by SQL92 if that is enabled there. Records are filtered here again, because
brokers compare only hashes of tags. Missing ranges are reported to `on_data_loss` with the reason.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Self, TypeVar

from firearrow._native.columnar.record_spans import Spans, from_answer
from firearrow._native.store.log.record import RecordError
from firearrow._native.wire.codes import PullFlag, RequestCode, ResponseCode
from firearrow.client.admin_api.admin import Admin
from firearrow.client.base.errors import BrokerError, ClientError, NoRoute
from firearrow.client.base.message import MessageQueue
from firearrow.spark_tools.base.body_check import with_valid_crc
from firearrow.spark_tools.base.errors import RequestRefused, TopicNotFound
from firearrow.spark_tools.base.filter import MessageFilter
from firearrow.spark_tools.base.filter_eval import FilterEvaluator
from firearrow.spark_tools.base.source import LMQ_PREFIX, OnDataLoss, QueueRange, RecordId
from firearrow.spark_tools.live.client_link import BUSY, SharedAdmin
from firearrow.spark_tools.live.cluster import Cluster
from firearrow.spark_tools.live.pull_pipeline import BrokerFilter, FilterUnsupported, PullPipeline
from firearrow.spark_tools.live.range_reader import RangeReader

T = TypeVar("T")
QUESTIONS_AT_ONCE = 32
TAG_SEPARATOR = " || "


class LiveReader:
    """A SourceReader. `group`: named in pull requests; `news_s`: how long to wait for records that should
    exist."""

    def __init__(self, cluster: Cluster, group: str, timeout_s: float, news_s: float) -> None:
        self._cluster = cluster
        self._group = group
        self._timeout_s = timeout_s
        self._news_s = news_s
        self._sizes: dict[tuple[str, str], float] = {}
        """(topic, broker) → average bytes of a record."""
        self._compacted: dict[str, bool] = {}
        """The topics of which offsets were missing → whether they are compaction topics."""
        self._acquired: SharedAdmin | None = None

    def __enter__(self) -> Self:
        self._acquired = SharedAdmin.acquire(self._cluster)
        return self

    def __exit__(self, *exc: object) -> None:
        self._admin.release()

    @property
    def _admin(self) -> SharedAdmin:
        assert self._acquired is not None, "use it in a with block"
        return self._acquired

    # ---- topics and queues ----

    def topics(self) -> list[str]:
        return self._ask(lambda admin: admin.topics())

    def queues(self, topic: str) -> list[MessageQueue]:
        try:
            return self._ask(lambda admin: admin.queues(topic))
        except TopicNotFound as missing:
            raise TopicNotFound(
                f"topic {topic}: no broker of {self._cluster} has a readable queue of it"
            ) from missing

    def bounds(self, queues: Sequence[MessageQueue]) -> dict[MessageQueue, tuple[int, int]]:
        async def asking(admin: Admin) -> list[tuple[int, int]]:
            return await _gathered(partial(_bounds, admin, queue) for queue in queues)

        return dict(zip(queues, self._ask(asking), strict=True))

    def tail_losses(self, queues: Sequence[MessageQueue]) -> list[tuple[QueueRange, str]]:
        """Always empty: a broker repairs its store at start and shows only its queues."""
        return []

    def offset_at(self, queue: MessageQueue, ms: int) -> int:
        return self._ask(lambda admin: admin.offset_at(queue, ms))

    def record_ids(self, places: Sequence[tuple[MessageQueue, int]]) -> list[RecordId | None]:
        """The records at these queue offsets; None: there is none, or the broker refuses to show it."""

        async def asking(admin: Admin) -> list[RecordId | None]:
            return await _gathered(partial(_record_id, admin, self._group, *place) for place in places)

        return self._ask(asking)

    def bytes_of(self, part: QueueRange) -> int:
        """Estimated from the first records read of that topic at that broker; 0 without records."""
        key = (part.queue.topic, part.queue.broker_name)
        if key not in self._sizes and len(part):
            pulls = self._pulls(part, BrokerFilter())
            try:
                found = from_answer(pulls.answer(part.start).body)
            except RecordError as error:
                raise RequestRefused(f"{part}: cannot decode the broker's response: {error}") from error
            finally:
                pulls.close()
            if not len(found):
                return 0
            self._sizes[key] = found.bytes / len(found)
        return int(len(part) * self._sizes.get(key, 0))

    def groups(self) -> dict[str, dict[MessageQueue, int]]:
        async def asking(admin: Admin) -> dict[str, dict[MessageQueue, int]]:
            names = sorted(await admin.groups())
            found = await _gathered(partial(_committed, admin, name) for name in names)
            return {name: offsets for name, offsets in zip(names, found, strict=True) if offsets}

        return self._ask(asking)

    # ---- records ----

    def read(
        self, part: QueueRange, message_filter: MessageFilter, on_data_loss: OnDataLoss, *, bytes_max: int
    ) -> Iterator[Spans]:
        """Unreachable, RequestRefused, TopicNotFound, InvalidOption, and what `on_data_loss` raises."""
        evaluator = FilterEvaluator(message_filter)
        broker_filter = _filter(message_filter)
        on_data_loss = self._unless_compacted(on_data_loss)
        start = part.start
        while start < part.end:
            pulls = self._pulls(replace(part, start=start), broker_filter)
            windows = RangeReader(
                pulls, part, start, on_data_loss, news_s=self._news_s, everything=broker_filter.everything
            )
            try:
                for spans in windows.of(bytes_max):
                    kept = evaluator.keep(spans)
                    if message_filter.check_crc:
                        kept = with_valid_crc(kept, part.queue, on_data_loss)
                    if len(kept):
                        yield kept
            except FilterUnsupported:
                broker_filter = BrokerFilter()
            except RecordError as error:
                raise RequestRefused(f"{part}: cannot decode the broker's response: {error}") from error
            finally:
                pulls.close()
                start = windows.done

    # ---- inside ----

    def _unless_compacted(self, on_data_loss: OnDataLoss) -> OnDataLoss:
        """In a compaction topic it is right that offsets have no message."""

        def lost(part: QueueRange, why: str) -> None:
            if not self._is_compacted(part.queue.topic):
                on_data_loss(part, why)

        return lost

    def _is_compacted(self, topic: str) -> bool:
        if topic not in self._compacted:
            try:
                configs = self._ask(lambda admin: admin.topic_config(topic))
            except (RequestRefused, TopicNotFound):
                return False
            self._compacted[topic] = any(
                config.attributes.get("cleanup.policy") == "COMPACTION" for config in configs.values()
            )
        return self._compacted[topic]

    def _pulls(self, part: QueueRange, broker_filter: BrokerFilter) -> PullPipeline:
        return PullPipeline(self._admin, part.queue, part.end, self._group, broker_filter, self._timeout_s)

    def _ask(self, question: Callable[[Admin], Awaitable[T]]) -> T:
        try:
            return self._admin.ask(question, self._timeout_s)
        except NoRoute as error:
            raise TopicNotFound(f"{self._cluster}: {error}") from error
        except ClientError as error:
            raise RequestRefused(f"{self._cluster}: {error}") from error


def _filter(message_filter: MessageFilter) -> BrokerFilter:
    """The part of the filter that the broker can apply: tags or SQL92, not both."""
    if message_filter.tags and not any(
        "||" in tag or tag.strip() != tag or tag == "*" for tag in message_filter.tags
    ):
        return BrokerFilter("TAG", TAG_SEPARATOR.join(sorted(message_filter.tags)))
    return BrokerFilter() if message_filter.sql is None else BrokerFilter("SQL92", message_filter.sql)


async def _gathered(questions: Iterable[Callable[[], Awaitable[T]]]) -> list[T]:
    """All results in order, at most QUESTIONS_AT_ONCE at a time; the first error cancels the rest."""
    at_once = asyncio.Semaphore(QUESTIONS_AT_ONCE)

    async def one(question: Callable[[], Awaitable[T]]) -> T:
        async with at_once:
            return await question()

    tasks = [asyncio.ensure_future(one(question)) for question in questions]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()


async def _bounds(admin: Admin, queue: MessageQueue) -> tuple[int, int]:
    first = await admin.min_offset(queue)
    return first, max(first, await admin.max_offset(queue))


async def _record_id(admin: Admin, group: str, queue: MessageQueue, queue_offset: int) -> RecordId | None:
    """Pulls one record. Errors of a broker that is busy or does not answer."""
    topic = admin.namespace.wrap(queue.topic)
    fields = {
        "consumerGroup": group,
        "topic": topic,
        "queueId": str(queue.queue_id),
        "queueOffset": str(queue_offset),
        "maxMsgNums": "1",
        "sysFlag": str(int(PullFlag.PULL_SUBSCRIPTION)),
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subVersion": "0",
        "subscription": "*",
        "expressionType": "TAG",
        "bname": queue.broker_name,
    }
    place = replace(queue, topic=topic)
    try:
        answer = await admin.calls.ask_master(place, RequestCode.PULL_MESSAGE, fields)
        if answer.code in BUSY:
            raise BrokerError(answer.code, answer.remark or "", queue.broker_name)
        found = from_answer(answer.body) if answer.code == ResponseCode.SUCCESS else None
    except RecordError as error:
        raise RequestRefused(f"{queue.topic}: cannot decode the broker's response: {error}") from error
    if not found:
        return None
    first = found[0]
    if first.queue_offset > queue_offset and not queue.topic.startswith(LMQ_PREFIX):
        return None
    return RecordId(queue_offset, first.physical_offset, first.store_timestamp)


async def _committed(admin: Admin, group: str) -> dict[MessageQueue, int]:
    lag = await admin.consumer_lag(group)
    return {queue: each.consumer_offset for queue, each in lag.queues.items() if each.consumer_offset >= 0}
