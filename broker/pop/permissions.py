"""Checks, in Apache's order, whether a client may peek at a topic's queues for a group. Loop thread.

For the requests that take nothing: PEEK_MESSAGE and NOTIFICATION. Also finds the group's next offset without
moving it.
"""

from typing import NamedTuple

from firearrow._native.protocol import name_rules
from firearrow._native.store.message_store import MessageStore
from firearrow._native.wire.codes import ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base.config import Config
from firearrow.broker.base.errors import Refusal, with_faq
from firearrow.broker.base.options import Options
from firearrow.broker.base.peer import Peer
from firearrow.broker.pop.receipt_handles import retry_topic
from firearrow.broker.tables.groups import GroupTable
from firearrow.broker.tables.offsets import ConsumerOffsets
from firearrow.broker.tables.topics import TopicConfig, TopicTable

ALL_QUEUES = -1
MESSAGES_MAX = 32
"""Of one answer; a peek for more gets this many, a pop is refused."""
TOO_LATE_MS = 500
"""A pop is refused if it arrives this long after its deadline."""

NO_POP = "has batch queues (queue.type=BatchCQ): its messages can be pulled, not popped"


class PopTarget(NamedTuple):
    """One queue of a topic, or all of them (`queue_id` -1), as a group sees them."""

    group: str
    topic: TopicConfig
    queue_id: int

    def queues(self, shift: int) -> list[int]:
        """The queues of the topic itself; if all of them, starting with queue `shift`."""
        return [self.queue_id] if self.queue_id >= 0 else rotated(self.topic, shift)


def check_pop(options: Options, peer: Peer, late_ms: int, count_max: int, *, final: bool) -> None:
    """The first checks of a pop, also of lite topics. `late_ms`: how long ago its deadline was. Refusal."""
    ip = options.broker_ip or peer.local[0]
    if not final and late_ms > TOO_LATE_MS:
        raise Refusal(ResponseCode.POLLING_TIMEOUT, f"the broker[{ip}] pop message is timeout too much")
    if not options.broker_permission & name_rules.PERM_READ:
        raise Refusal(ResponseCode.NO_PERMISSION, f"the broker[{ip}] pop message is forbidden")
    if count_max > MESSAGES_MAX:
        remark = f"the broker[{ip}] pop message's num is greater than 32"
        raise Refusal(ResponseCode.INVALID_PARAMETER, remark)


class PopPermissions:
    def __init__(
        self,
        store: MessageStore,
        topics: TopicTable,
        groups: GroupTable,
        offsets: ConsumerOffsets,
        config: Config,
    ) -> None:
        self._store = store
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._config = config

    def check_access(self, request: RemotingCommand, peer: Peer) -> PopTarget:
        """Check the request and return what it peeks at. Raises Refusal."""
        group, name = request.text("consumerGroup"), request.text("topic")
        queue_id = max(request.integer("queueId", 32), ALL_QUEUES)
        options = self._config.options
        if not options.broker_permission & name_rules.PERM_READ:
            ip = options.broker_ip or peer.local[0]
            raise Refusal(ResponseCode.NO_PERMISSION, f"the broker[{ip}] peeking message is forbidden")
        topic = self._topics.get(name)
        if topic is None:
            remark = f"topic[{name}] not exist, apply first please! "
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, with_faq(remark))
        if not topic.readable:
            raise Refusal(ResponseCode.NO_PERMISSION, f"the topic[{name}] peeking message is forbidden")
        if topic.has_batch_queues:
            raise Refusal(ResponseCode.NO_PERMISSION, f"the topic[{name}] {NO_POP}")
        if queue_id >= topic.read_queues:
            remark = (
                f"queueId[{queue_id}] is illegal, topic:[{name}] topicConfig.readQueueNums:"
                f"[{topic.read_queues}] consumer:[{peer.remote[0]}:{peer.remote[1]}]"
            )
            raise Refusal(ResponseCode.INVALID_PARAMETER, remark)
        self._check_group(group)
        return PopTarget(group, topic, queue_id)

    def retry_topics(self, target: PopTarget) -> list[TopicConfig]:
        """The group's existing retry topics of this topic, first the one that `revive` writes to."""
        options = self._config.options
        both = (True, False) if options.pop_retry_v1_too else (True,)
        versions = both if options.pop_retry_v2 else (False,)
        found = (self._topics.get(retry_topic(target.topic.name, target.group, v2)) for v2 in versions)
        return [topic for topic in found if topic is not None]

    def next_offset(self, group: str, topic: str, queue_id: int) -> int:
        """Where the group's next pop would begin; commits nothing."""
        committed = self._offsets.committed(group, topic, queue_id)
        return max(committed, self._store.reader.min_offset(topic, queue_id))

    def _check_group(self, name: str) -> None:
        group = self._groups.find(name)
        if group is None:
            remark = f"subscription group [{name}] does not exist, "
            raise Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, with_faq(remark))
        if not group.consume_enable:
            raise Refusal(ResponseCode.NO_PERMISSION, f"subscription group no permission, {name}")


def rotated(topic: TopicConfig, shift: int) -> list[int]:
    """All read queues of the topic, starting with queue `shift`."""
    return [(shift + n) % topic.read_queues for n in range(topic.read_queues)]
