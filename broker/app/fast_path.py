"""FastPathSetup: builds the fast path and updates it when topics, groups, subscriptions or options change.

A topic is plain, and sends to it may take the fast path, if its messages are stored as they come: no system
topic but that of message traces, no retry topic, dead letter queue or LMQ. Loop thread.
"""

from collections.abc import Iterable

from firearrow._native.fastpath.access_check import AccessCheck
from firearrow._native.fastpath.ack_templates import AckTemplates
from firearrow._native.fastpath.fast_connection import FastHandler, RequestCounts
from firearrow._native.fastpath.fast_dispatch import FastDispatch, RequestCounters
from firearrow._native.fastpath.long_polling import PullHoldService
from firearrow._native.fastpath.pull_message import Puller
from firearrow._native.fastpath.quotas import Quotas
from firearrow._native.fastpath.request_times import RequestTimes
from firearrow._native.fastpath.send_message import Sender
from firearrow._native.fastpath.topic_cache import PlainTopics
from firearrow._native.protocol import name_rules
from firearrow.broker.base.message import Property, properties_text
from firearrow.broker.base.message_ids import unique_ids
from firearrow.broker.base.options import Options
from firearrow.broker.context.broker_context import BrokerContext
from firearrow.broker.handlers.pull import PullHandler
from firearrow.broker.tables.members import LANGUAGES
from firearrow.broker.tables.topics import TopicConfig


class FastPathSetup:
    """`fast_dispatch` is for the broker's port, `vip_dispatch` for the VIP port, which takes no pulls."""

    def __init__(
        self,
        context: BrokerContext,
        store_host: bytes,
        pulls: PullHandler,
        hold_service: PullHoldService,
        times: RequestTimes,
        access: AccessCheck | None,
        ack_templates: AckTemplates,
    ) -> None:
        self._ack_templates = ack_templates
        self._topics = context.tables.topics
        self._plain_topics = PlainTopics()
        self._is_slave = context.config.options.is_slave  # whose sends are refused
        self._may_order = bool(context.config.options.broker_permission & name_rules.PERM_WRITE)
        self.sender = Sender(
            self._plain_topics,
            context.store,
            context.write_batch,
            context.stats,
            context.clock,
            unique_ids(store_host),
            store_host,
            times,
        )
        self._puller = Puller(
            context.store,
            hold_service,
            pulls.plain,
            pulls.run_again,
            context.tables.offsets,
            context.journal.journal_page,
            context.stats,
            context.clock,
            times,
        )
        if access is not None:
            self.sender.protect(access)
            self._puller.protect(access)
        context.stats.source(self.sender.count)
        context.stats.source(self._puller.count)
        self.counters = RequestCounters()
        self.fast_dispatch: FastHandler = FastDispatch(self.sender, self._puller, self.counters)
        self.vip_dispatch: FastHandler = FastDispatch(self.sender, None, self.counters)
        self._changed(self._topics)
        self._topics.listen(self._changed)
        for table in (context.tables.groups, context.tables.clients):
            table.listen(self._puller.forget)
        context.config.listen(self._configure)
        context.quotas.listen(self._limit)

    def _changed(self, topics: Iterable[str]) -> None:
        """These topics were created, changed or deleted."""
        self._puller.forget()
        for name in topics:
            topic = self._topics.get(name)
            if topic is None or self._is_slave or not self._is_plain(topic):
                self._plain_topics.drop(name)
            else:
                self._plain_topics.put(
                    name,
                    queues=max(topic.read_queues, topic.write_queues),
                    sendable=self._may_order or not topic.order,
                    multi_tags=topic.filter_type == "MULTI_TAG",
                )

    def runtime_info(self) -> dict[str, str]:
        """How requests were handled, by kind of client: `sends` as template, parsed and complete, `pulls` as fast
        and complete, then the reasons of what was complete. Of gRPC, the plain sends and acknowledgements."""
        found = {_client_key(counts): _counts_text(counts) for counts in self.counters.all()}
        sends, acks = self.sender.calls, self._ack_templates.calls
        return found | ({"fastPath_gRPC": f"sends: {sends} fast; acks: {acks} fast"} if sends or acks else {})

    def _is_plain(self, topic: TopicConfig) -> bool:
        name = topic.name
        if (
            topic.has_batch_queues
            or topic.is_compacted
            or name.startswith((name_rules.RETRY_PREFIX, name_rules.DLQ_PREFIX, name_rules.LMQ_PREFIX))
        ):
            return False
        is_system = self._topics.is_system(name) and name != name_rules.TRACE_TOPIC
        return name_rules.topic_fault(name) is None and not is_system

    def _limit(self, sends: Quotas | None, reads: Quotas | None) -> None:
        self.sender.limit(sends)
        self._puller.limit(reads)

    def _configure(self, options: Options) -> None:
        in_answer = {Property.REGION: options.region_id, Property.TRACE_ON: str(options.trace_on).lower()}
        in_message = properties_text(in_answer | {Property.CLUSTER: options.cluster_name})
        self.sender.configure(in_message, in_answer, options.accept_sends_from_ms)
        self._puller.configure(options.lite_pull)
        self._puller.forget()
        may_order = bool(options.broker_permission & name_rules.PERM_WRITE)
        if may_order != self._may_order:
            self._may_order = may_order
            self._changed(self._topics)


def _client_key(counts: RequestCounts) -> str:
    name = LANGUAGES.get(counts.language, "others")
    return f"fastPath_{name}_{counts.version}" if counts.version >= 0 else f"fastPath_{name}"


def _counts_text(counts: RequestCounts) -> str:
    left = counts.left()
    sends, pulls = (sum(reasons[which] for reasons in left.values()) for which in (0, 1))
    text = (
        f"sends: {counts.templated} template, {counts.parsed} parsed, {sends} complete; "
        f"pulls: {counts.pulled} fast, {pulls} complete"
    )
    return "; ".join([text, *(f"{reason}: {sum(counted)}" for reason, counted in left.items())])
