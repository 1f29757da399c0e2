"""PULL_MESSAGE (11) and LITE_PULL_MESSAGE (361): checks in Apache's order, read, long polling.

Loop thread.
"""

import logging
from typing import NamedTuple

from firearrow._native.fastpath.long_polling import HeldCallback, PullHoldService, weight_without_body
from firearrow._native.protocol import name_rules
from firearrow._native.store.message_store import GetResult, GetStatus
from firearrow._native.wire.codes import PullFlag, RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.append.broadcast_offsets import BroadcastOffsets
from firearrow.broker.append.lmq import lite_topic_of
from firearrow.broker.base.errors import Refusal, with_faq
from firearrow.broker.base.peer import Peer, Routes
from firearrow.broker.context.broker_context import BrokerContext
from firearrow.broker.tables.groups import GroupConfig
from firearrow.broker.tables.offsets import InvalidOffset
from firearrow.broker.tables.subscription_filter import EntryFilter, FilterCache
from firearrow.broker.tables.subscriptions import InvalidSubscription, Subscription
from firearrow.broker.tables.topics import NOT_COMPACTED, TopicConfig

log = logging.getLogger("firearrow.pull")

FORBIDDEN_BY_BROKER = 1
FORBIDDEN_BY_GROUP = 2
FORBIDDEN_BY_TOPIC = 3
FORBIDDEN_BROADCAST = 4
FORBIDDEN_SUBSCRIPTION = 5
HOLD_MS_MAX = 600_000
ENTRIES_CHECKED = 800
"""New entries that are searched for a subscribed tag; if there are more, the pull runs to move its offset."""

TAG_BYTES = 128
"""Memory per tag of a held pull: its hash in a set that is half empty."""

CODES_MAX = 16
"""Tags of a plain pull; pulls with more tags do not use the fast path."""

CODE_OF = {
    GetStatus.FOUND: ResponseCode.SUCCESS,
    GetStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
}


class PullRequest(NamedTuple):
    """The fields of a request, checked for their types."""

    group: str
    topic: str
    queue_id: int
    queue_offset: int
    max_messages: int
    flags: int
    commit_offset: int
    suspend_ms: int
    version: int
    expression: str
    expression_type: str
    lite_topic: str = ""

    @property
    def stored_topic(self) -> str:
        """Whose queue is read: an LMQ if the request names a lite topic."""
        return name_rules.lite_queue(self.topic, self.lite_topic) if self.lite_topic else self.topic

    @staticmethod
    def of(request: RemotingCommand) -> "PullRequest":
        return PullRequest(
            group=request.text("consumerGroup"),
            topic=request.text("topic"),
            queue_id=request.integer("queueId", 32),
            queue_offset=request.integer("queueOffset"),
            max_messages=max(request.integer("maxMsgNums", 32), 1),
            flags=request.integer("sysFlag", 32),
            commit_offset=request.integer_or("commitOffset", 0),
            suspend_ms=request.integer_or("suspendTimeoutMillis", 0),
            version=request.integer_or("subVersion", 0),
            expression=request.text_or("subscription", ""),
            expression_type=request.text_or("expressionType", ""),
            lite_topic=lite_topic_of(request),
        )


class PlainPull(NamedTuple):
    """What pulls of a group and topic with this subscription may read, for the fast path, until something
    changes.

    `queues`: number of queues. `codes`: tags codes, () for all messages. `wait_ms_max`: how long a pull may
    be held; -1: a pull that finds nothing goes to the handler. `recreated`: a topic of this name was
    deleted. `near`, `far`: which broker is suggested to readers near the log's end, and to others.
    """

    queues: int
    codes: tuple[int, ...]
    topic_sys_flag: int
    group_sys_flag: int
    wait_ms_max: int
    recreated: bool
    near: int
    far: int


class PullHandler:
    def __init__(
        self,
        context: BrokerContext,
        filters: FilterCache,
        broadcasts: BroadcastOffsets,
        hold_service: PullHoldService,
    ) -> None:
        self._store = context.store
        self._topics = context.tables.topics
        self._groups = context.tables.groups
        self._offsets = context.tables.offsets
        self._clients = context.tables.clients
        self._deleted = context.tables.deleted
        self._filters = filters
        self._broadcasts = broadcasts
        self._hold_service = hold_service
        self._config = context.config
        self._clock = context.clock
        self._stats = context.stats
        self._quotas = context.quotas
        self._access = context.held_access

    def routes(self) -> Routes:
        return {RequestCode.PULL_MESSAGE: self.pull, RequestCode.LITE_PULL_MESSAGE: self.pull}

    def pull(self, request: RemotingCommand, peer: Peer) -> RemotingCommand | None:
        return self._run(request, peer, PullRequest.of(request), first=True)

    def run_again(self, request: RemotingCommand, peer: Peer, generation: int) -> None:
        """Answer a pull that was held in this generation of rights, with whatever there is."""
        try:
            self._access.check(request, peer, generation)
            answer = self._run(request, peer, PullRequest.of(request), first=False)
        except Refusal as refusal:
            answer = request.answer(refusal.code, refusal.remark, refusal.ext)
        except Exception as error:  # answer this client; other held pulls are not affected
            log.exception("a held pull of %s failed", peer.remote)
            answer = request.answer(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")
        if answer is not None:
            peer.reply(answer)

    def _run(
        self, request: RemotingCommand, peer: Peer, pull: PullRequest, *, first: bool
    ) -> RemotingCommand | None:
        """Pull once. Only the `first` time the request may be held, and its offset is committed."""
        group, topic = self._check(request, peer, pull)
        selection = self._selection(pull, group)
        reset = self._offsets.take_reset(pull.group, pull.stored_topic, pull.queue_id)
        if reset is not None:
            return self._reset_answer(request, pull, topic, group, reset)
        puller = None
        if pull.group in self._clients.broadcasting or "requestSource" in request.ext:
            puller = self._broadcasts.puller(pull.topic, pull.group, request, peer)
        if (
            puller is not None
            and (begin := self._broadcasts.start_offset(puller, pull.queue_id, pull.queue_offset)) >= 0
        ):
            self._broadcasts.note(puller, pull.queue_id, begin)
            return self._reset_answer(request, pull, topic, group, begin)
        if pull.stored_topic in self._deleted and (first_offset := self._first_offset(pull)) >= 0:
            return self._reset_answer(request, pull, topic, group, first_offset)
        got = self._store.reader.get(
            pull.stored_topic,
            pull.queue_id,
            pull.queue_offset,
            pull.max_messages,
            tags=selection.tags,
            accept=selection.accept,
        )
        self._offsets.note_pull(pull.group, pull.stored_topic, pull.queue_id, got.next_offset)
        code = _code_of(got, pull)
        if code == ResponseCode.PULL_OFFSET_MOVED and self._may_come(pull, got.max_offset):
            code, got.next_offset = ResponseCode.PULL_NOT_FOUND, pull.queue_offset
        if puller is not None:
            moved = code == ResponseCode.PULL_OFFSET_MOVED
            self._broadcasts.note(puller, pull.queue_id, got.next_offset if moved else pull.queue_offset)
        if first and pull.flags & PullFlag.PULL_COMMIT_OFFSET:
            self._commit(pull)
        if code == ResponseCode.SUCCESS:
            self._stats.got(pull.group, pull.topic, got.count, len(got.body))
            self._quotas.read(request, pull.group, pull.topic, got.count, len(got.body))
        else:
            self._stats.missed()
        may_wait = code == ResponseCode.PULL_NOT_FOUND and first and pull.flags & PullFlag.PULL_SUSPEND
        if may_wait and self._hold(request, peer, pull, selection):
            return None
        return request.answer(code, got.status.name, self._header(got, topic, group), got.body)

    def plain(
        self,
        group_name: str,
        topic_name: str,
        flags: int,
        version: int,
        expression: str,
        expression_type: str,
    ) -> PlainPull | None:
        """What pulls with these fields may read; None if each needs the handler. Called by the fast path."""
        options = self._config.options
        group, topic = self._groups.get(group_name), self._topics.get(topic_name)
        if group is None or topic is None or group_name in self._clients.broadcasting:
            return None
        is_allowed = (
            group.consume_enable and topic.readable and options.broker_permission & name_rules.PERM_READ
        )
        if topic.has_batch_queues or topic.is_compacted:
            return None
        if not is_allowed or (options.is_slave and not options.slave_read):
            return None
        pull = PullRequest(group_name, topic_name, 0, 0, 1, flags, 0, 0, version, expression, expression_type)
        try:
            tags, accept = self._selection(pull, group)
        except Refusal:
            return None
        if accept is not None or (tags is not None and len(tags) > CODES_MAX):
            return None
        wait_ms_max = HOLD_MS_MAX if options.long_polling else -1
        return PlainPull(
            topic.read_queues,
            tuple(tags or ()),
            topic.sys_flag,
            group.sys_flag,
            wait_ms_max,
            topic_name in self._deleted,
            group.broker_id if options.slave_read else 0,
            group.which_broker_when_slow if options.slave_read else 0,
        )

    # ---- checks ----

    def _check(
        self, request: RemotingCommand, peer: Peer, pull: PullRequest
    ) -> tuple[GroupConfig, TopicConfig]:
        options = self._config.options
        ip = options.broker_ip or peer.local[0]
        if not options.broker_permission & name_rules.PERM_READ:
            raise _forbidden(f"the broker[{ip}] pulling message is forbidden", FORBIDDEN_BY_BROKER)
        if request.code == RequestCode.LITE_PULL_MESSAGE and not options.lite_pull:
            raise _forbidden(f"the broker[{ip}] for lite pull consumer is forbidden", FORBIDDEN_BY_BROKER)
        group = self._groups.find(pull.group)
        if group is None:
            remark = f"subscription group [{pull.group}] does not exist, "
            raise Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, with_faq(remark))
        if not group.consume_enable:
            raise _forbidden(f"subscription group no permission, {pull.group}", FORBIDDEN_BY_GROUP)
        topic = self._topics.get(pull.topic)
        if topic is None:
            remark = f"topic[{pull.topic}] not exist, apply first please!"
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, with_faq(remark))
        if topic.is_refused:
            remark = f"the topic[{pull.topic}] pulling message is forbidden: it {NOT_COMPACTED}"
            raise _forbidden(remark, FORBIDDEN_BY_TOPIC)
        if not topic.readable:
            raise _forbidden(f"the topic[{pull.topic}] pulling message is forbidden", FORBIDDEN_BY_TOPIC)
        if not 0 <= pull.queue_id < topic.read_queues:
            remark = (
                f"queueId[{pull.queue_id}] is illegal, topic:[{pull.topic}] topicConfig.readQueueNums:"
                f"[{topic.read_queues}] consumer:[{peer.remote[0]}:{peer.remote[1]}]"
            )
            raise Refusal(ResponseCode.INVALID_PARAMETER, remark)
        return group, topic

    def _selection(self, pull: PullRequest, group: GroupConfig) -> EntryFilter:
        in_request = bool(pull.flags & PullFlag.PULL_SUBSCRIPTION)
        if in_request:
            try:
                found = Subscription.of_expression(
                    pull.topic, pull.expression, pull.version, pull.expression_type or "TAG"
                )
            except InvalidSubscription:
                remark = "parse the consumer's subscription failed"
                raise Refusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, remark) from None
            self._clients.compensate(pull.group, found)
        else:
            found = self._subscribed(pull, group)
        return self._filters.select(found, pull.group, given=in_request)

    def _subscribed(self, pull: PullRequest, group: GroupConfig) -> Subscription:
        """The subscription from the group's heartbeats."""
        online = self._clients.consumer_group(pull.group)
        if online is None:
            raise Refusal(
                ResponseCode.SUBSCRIPTION_NOT_EXIST, with_faq("the consumer's group info not exist")
            )
        if not group.consume_broadcast_enable and online.is_broadcasting:
            remark = f"the consumer group[{pull.group}] can not consume by broadcast way"
            raise _forbidden(remark, FORBIDDEN_BROADCAST)
        if not self._groups.readable(pull.group, pull.topic):
            remark = f"the consumer group[{pull.group}] is forbidden for topic[{pull.topic}]"
            raise _forbidden(remark, FORBIDDEN_SUBSCRIPTION)
        found = online.subscriptions.get(pull.topic)
        if found is None:
            raise Refusal(
                ResponseCode.SUBSCRIPTION_NOT_EXIST, with_faq("the consumer's subscription not exist")
            )
        if found.version < pull.version:
            raise Refusal(ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest")
        return found

    # ---- answers ----

    def _header(self, got: GetResult, topic: TopicConfig, group: GroupConfig) -> dict[str, str]:
        suggested = 0
        if self._config.options.slave_read:
            suggested = group.which_broker_when_slow if got.far_behind else group.broker_id
        return _ext(suggested, got.next_offset, got.min_offset, got.max_offset, topic, group)

    def _reset_answer(
        self, request: RemotingCommand, pull: PullRequest, topic: TopicConfig, group: GroupConfig, target: int
    ) -> RemotingCommand:
        low = self._store.reader.min_offset(pull.stored_topic, pull.queue_id)
        high = self._store.reader.max_offset(pull.stored_topic, pull.queue_id)
        ext = _ext(0, target, low, high, topic, group)
        return request.answer(ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET", ext)

    def _first_offset(self, pull: PullRequest) -> int:
        """The queue's first offset if the pull goes on where a deleted queue of this name was; else -1."""
        low = max(self._store.reader.min_offset(pull.stored_topic, pull.queue_id), 0)
        # also of what is not confirmed: a reader past what is visible may have it from the former master
        high = max(self._store.next_offset(pull.stored_topic, pull.queue_id), 0)
        is_old = self._deleted.is_old(
            pull.group, pull.stored_topic, pull.queue_id, pull.queue_offset, low, high
        )
        return low if is_old else -1

    def _may_come(self, pull: PullRequest, max_offset: int) -> bool:
        """Whether a slave may yet get the message: the offset is past its queue's end, which the master's may be,
        too."""
        options = self._config.options
        return options.is_slave and not options.offset_check and pull.queue_offset > max_offset

    def _commit(self, pull: PullRequest) -> None:
        if self._offsets.not_here:  # the messages are served all the same
            return
        try:
            self._offsets.commit(pull.group, pull.stored_topic, pull.queue_id, pull.commit_offset)
        except InvalidOffset as refused:
            raise Refusal(ResponseCode.SYSTEM_BUSY, str(refused)) from None

    def _hold(self, request: RemotingCommand, peer: Peer, pull: PullRequest, selection: EntryFilter) -> bool:
        options = self._config.options
        wait_ms = min(pull.suspend_ms, HOLD_MS_MAX) if options.long_polling else options.short_polling_ms
        next_offset, generation = pull.queue_offset, self._access.generation

        def has_match() -> bool:
            nonlocal next_offset
            if peer.write_paused:
                return False
            if selection.accept is None:
                return self._has_tagged(pull, selection.tags)
            found, next_offset = self._has_accepted(pull, next_offset, selection)
            return found

        deadline_ms = self._clock.monotonic_ms() + max(wait_ms, 0)
        held = HeldCallback(
            (pull.stored_topic, pull.queue_id),
            peer,
            deadline_ms,
            has_match,
            lambda: self.run_again(request, peer, generation),
            weight_without_body(request) + TAG_BYTES * len(selection.tags or ()),
        )
        request.held = self._hold_service.add(held)
        return request.held

    def _has_tagged(self, pull: PullRequest, tags: frozenset[int] | None) -> bool:
        """Whether a second pull would find a message, move its offset far, or begin at a deleted offset."""
        max_offset = self._store.reader.max_offset(pull.stored_topic, pull.queue_id)
        if pull.queue_offset < self._store.reader.min_offset(pull.stored_topic, pull.queue_id):
            return True
        if self._may_come(pull, max_offset):
            return False
        new_entries = max_offset - pull.queue_offset
        if tags is None or not 0 < new_entries <= ENTRIES_CHECKED:
            return new_entries != 0
        entries = self._store.reader.entries(pull.stored_topic, pull.queue_id, pull.queue_offset, new_entries)
        return any(_as_int32(entry.tags_code) in tags for entry in entries)

    def _has_accepted(self, pull: PullRequest, next_offset: int, selection: EntryFilter) -> tuple[bool, int]:
        """As `_has_tagged`, with a filter, from `next_offset` on; also return the next offset to check."""
        try:
            got = self._store.reader.get(
                pull.stored_topic, pull.queue_id, next_offset, 1, tags=selection.tags, accept=selection.accept
            )
        except Refusal:
            return True, next_offset  # the pull itself will be refused
        if got.status is GetStatus.OFFSET_OVERFLOW_ONE:
            return False, next_offset
        moved = got.next_offset - pull.queue_offset > ENTRIES_CHECKED
        return moved or got.status is not GetStatus.NO_MATCHED_MESSAGE, got.next_offset


def _as_int32(tags_code: int) -> int:
    return ((tags_code & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000


def _ext(
    suggested: int, next_offset: int, low: int, high: int, topic: TopicConfig, group: GroupConfig
) -> dict[str, str]:
    return {
        "suggestWhichBrokerId": str(suggested),
        "nextBeginOffset": str(next_offset),
        "minOffset": str(low),
        "maxOffset": str(high),
        "topicSysFlag": str(topic.sys_flag),
        "groupSysFlag": str(group.sys_flag),
    }


def _code_of(got: GetResult, pull: PullRequest) -> int:
    if got.status in (GetStatus.NO_MESSAGE_IN_QUEUE, GetStatus.NO_MATCHED_LOGIC_QUEUE):
        return ResponseCode.PULL_OFFSET_MOVED if pull.queue_offset != 0 else ResponseCode.PULL_NOT_FOUND
    return CODE_OF[got.status]


def _forbidden(remark: str, forbidden_type: int) -> Refusal:
    return Refusal(ResponseCode.NO_PERMISSION, remark, {"forbiddenType": str(forbidden_type)})
