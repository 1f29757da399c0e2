"""RULES: what each request code needs, in one table. Pure functions of the request and of `Facts`.

Where Apache checks a request, its rule is here (DefaultAuthorizationContextBuilder, @RocketMQAction). Where it lets any
user through, ours states what is needed; `CLOSED` names these codes, and docs/PROTOCOL.md lists them. A code that is
missing here needs what administration of the cluster needs. A missing or malformed field is a FieldError or ValueError:
the handler would refuse it as well.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, Protocol

from firearrow._native.protocol import name_rules
from firearrow._native.protocol.access_model import Action, Resource
from firearrow._native.protocol.policy_decision import Need
from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.auth import body_rights
from firearrow.broker.auth.body_rights import consumed, group_need, sent, topic_need
from firearrow.broker.base.message import Property, properties_of
from firearrow.broker.base.message_ids import offset_of
from firearrow.broker.pop.checkpoints import revive_topic
from firearrow.broker.pop.receipt_handles import normal_topic

NEEDS_MAX = 20_000
"""Rights of a request: while they are looked up, all others wait."""
SENT = (
    "Topic Pub, also of the LMQs that it names; a retry topic: Group Sub; a retry or a dead letter: Topic Sub or Pub "
    "of the topic that RETRY_TOPIC names; the timer's and POP's own topics: Cluster Update as well"
)
PUB, SUB, GET = Action.PUB, Action.SUB, Action.GET
CREATE, UPDATE, DELETE, LIST = Action.CREATE, Action.UPDATE, Action.DELETE, Action.LIST


class Facts(Protocol):
    """What rules know about the broker."""

    cluster: str
    names_lmqs: bool
    """Whether a message may name LMQs, which get it as well."""

    def topic_at(self, physical_offset: int) -> str | None:
        """The topic of the record that starts there: of a half message or a timer message, the one it is for. None:
        there is no record."""


class Rule(NamedTuple):
    """`text`: the same for people, as docs/PROTOCOL.md prints it."""

    needs: Callable[[RemotingCommand, Facts], Iterable[Need]]
    text: str


def _cluster(action: Action) -> Rule:
    return Rule(lambda _, facts: (Need(Resource.cluster(facts.cluster), action),), f"Cluster {action.text}")


def _names(action: Action, *, topic: str = "", group: str = "", more: tuple[str, ...] = ()) -> Rule:
    """A right on the topic and on the group that these fields name; fields in `more` may be missing."""

    def needs(request: RemotingCommand, _: Facts) -> Iterator[Need]:
        for field, need in ((topic, topic_need), (group, group_need)):
            if not field:
                continue
            name = request.text_or(field, "") if field in more else request.text(field)
            if name or field not in more:
                yield need(name, action)

    parts = [f"{kind} {action.text}" for kind, field in (("Topic", topic), ("Group", group)) if field]
    return Rule(needs, " and ".join(parts))


def _sent(topic: str, properties: str) -> Rule:
    """Sends: the topic and the properties are in these fields."""

    def needs(request: RemotingCommand, facts: Facts) -> Iterator[Need]:
        name, text = request.text(topic), request.text_or(properties, "")
        if name == name_rules.TIMER_TOPIC or name == revive_topic(facts.cluster):
            yield Need(Resource.cluster(facts.cluster), UPDATE)  # the broker does what its messages state
        yield from sent(name)
        if Property.MULTI_DISPATCH in text or Property.RETRY_TOPIC in text:
            yield from _named(name, properties_of(text), facts)

    return Rule(needs, SENT)


def _named(topic: str, properties: dict[str, str], facts: Facts) -> Iterator[Need]:
    """What PROPERTY_RULES asks for what the properties name."""
    if facts.names_lmqs:
        for name in filter(None, properties.get(Property.MULTI_DISPATCH, "").split(",")):
            yield topic_need(name, PUB)
    origin = properties.get(Property.RETRY_TOPIC)
    if origin and topic.startswith((name_rules.RETRY_PREFIX, name_rules.DLQ_PREFIX)):
        yield topic_need(origin, SUB | PUB)


def _route(request: RemotingCommand, _: Facts) -> Iterator[Need]:
    """Routes of system topics, which clients ask for before they send to a new topic, are not secret."""
    name = request.text("topic")
    if name.startswith(name_rules.RETRY_PREFIX):
        yield Need(Resource.group(name), SUB | GET)
    elif not name_rules.is_system_topic(name):
        yield Need(Resource.topic(name), PUB | SUB | GET)


def _sent_back(request: RemotingCommand, facts: Facts) -> Iterator[Need]:
    """The broker copies the message: its reader has to be allowed to read it. It is at the place that clients of gRPC
    name, else at the offset in the log."""
    yield group_need(request.text("group"), SUB)
    if "originQueueOffset" in request.ext:
        yield topic_need(request.text("originTopic"), SUB)
    else:
        yield from _read_at(request.integer("offset"), facts, SUB)


def _read_at(offset: int, facts: Facts, actions: Action) -> Iterator[Need]:
    return _of_message(facts.topic_at(offset), actions)


def _of_message(topic: str | None, actions: Action, named: str = "") -> Iterator[Need]:
    """The topic of a message, and the one that the request names, which may be another one."""
    if named:
        yield topic_need(named, actions)
    if topic is not None and topic != named:
        yield topic_need(topic, actions)._replace(is_named=False)


def _ended(request: RemotingCommand, facts: Facts) -> Iterator[Need]:
    """The topic of the half message, and the one that the request names."""
    topic = facts.topic_at(request.integer("commitLogOffset"))
    return _of_message(topic, PUB, request.text_or("topic", ""))


def _resumed(request: RemotingCommand, facts: Facts) -> Iterator[Need]:
    topic = _topic_of_id(request.text("msgId"), facts)
    return _of_message(topic, UPDATE, request.text_or("topic", ""))


def _consumed_directly(request: RemotingCommand, facts: Facts) -> Iterator[Need]:
    yield group_need(request.text("consumerGroup"), SUB)
    topic = _topic_of_id(request.text_or("msgId", ""), facts)
    yield from _of_message(topic, SUB, request.text_or("topic", ""))


def _topic_of_id(message_id: str, facts: Facts) -> str | None:
    try:
        return facts.topic_at(offset_of(message_id))
    except ValueError:
        return None


def _unregistered(request: RemotingCommand, _: Facts) -> Iterator[Need]:
    group = request.text_or("consumerGroup", "")
    if group.strip():
        yield group_need(group, SUB)


def _queried(actions: Action) -> Callable[[RemotingCommand, Facts], Iterator[Need]]:
    def needs(request: RemotingCommand, _: Facts) -> Iterator[Need]:
        return consumed(request.text("consumerGroup"), request.text("topic"), actions)

    return needs


def _acknowledged(request: RemotingCommand, _: Facts) -> Iterator[Need]:
    """Of a message that was popped again, clients name the topic in which it waited, that of the group's retries."""
    group = request.text("consumerGroup")
    yield topic_need(normal_topic(request.text("topic"), group), SUB)
    yield group_need(group, SUB)


def _stats(request: RemotingCommand, _: Facts) -> Iterator[Need]:
    yield group_need(request.text("consumerGroup"), GET)
    for topic in {request.text_or("topic", ""), *request.text_or("topicList", "").split(";")}:
        if topic:
            yield topic_need(topic, GET)


def _corrected(request: RemotingCommand, _: Facts) -> Iterator[Need]:
    yield topic_need(request.text("topic"), GET)
    for group in {request.text("compareGroup"), *request.text_or("filterGroups", "").split(",")}:
        if group:
            yield group_need(group, GET)


def _cloned(request: RemotingCommand, _: Facts) -> Iterator[Need]:
    yield group_need(request.text("srcGroup"), UPDATE)
    yield group_need(request.text("destGroup"), UPDATE)
    if topic := request.text_or("topic", ""):
        yield topic_need(topic, UPDATE)


def _viewed(request: RemotingCommand, facts: Facts) -> Iterator[Need]:
    return _read_at(request.integer("offset"), facts, SUB | GET)


def _both(action: Action, more: tuple[str, ...] = ()) -> Rule:
    """As clients name them."""
    return _names(action, topic="topic", group="consumerGroup", more=more)


def _admin(action: Action, more: tuple[str, ...] = ()) -> Rule:
    """As tools name them."""
    return _names(action, topic="topic", group="group", more=more)


def _listed(*, topic: bool = False, group: bool = False) -> Rule:
    """A list of what waits: of the topic and the group that the request names, or else of all. Only those that the
    handler reads count: otherwise a request could name one, and get the list of all."""

    def needs(request: RemotingCommand, facts: Facts) -> Iterator[Need]:
        topic_name = request.text_or("topic", "") if topic else ""
        group_name = request.text_or("group", "") if group else ""
        if topic_name:
            yield topic_need(topic_name, GET)
        if group_name:
            yield group_need(group_name, GET)
        if not topic_name and not group_name:
            yield Need(Resource.cluster(facts.cluster), GET)

    parts = [f"{kind} Get" for kind, read in (("Topic", topic), ("Group", group)) if read]
    return Rule(needs, f"{' and '.join(parts)} if named, else Cluster Get")


RULES: dict[int, Rule] = {
    # messages
    RequestCode.SEND_MESSAGE: _sent("topic", "properties"),
    RequestCode.SEND_MESSAGE_V2: _sent("b", "i"),
    RequestCode.SEND_BATCH_MESSAGE: _sent("b", "i"),
    RequestCode.SEND_REPLY_MESSAGE: _sent("topic", "properties"),
    RequestCode.SEND_REPLY_MESSAGE_V2: _sent("b", "i"),
    RequestCode.PULL_MESSAGE: Rule(_queried(SUB), "Topic Sub and Group Sub"),
    RequestCode.LITE_PULL_MESSAGE: Rule(_queried(SUB), "Topic Sub and Group Sub"),
    RequestCode.CONSUMER_SEND_MSG_BACK: Rule(_sent_back, "Group Sub, and Topic Sub of the message"),
    RequestCode.END_TRANSACTION: Rule(_ended, "Topic Pub of the half message"),
    RequestCode.RESUME_CHECK_HALF_MESSAGE: Rule(_resumed, "Topic Update of the half message"),
    RequestCode.RECALL_MESSAGE: Rule(body_rights.recalled, "Topic Pub, also of the recall handle"),
    RequestCode.VIEW_MESSAGE_BY_ID: Rule(_viewed, "Topic Sub or Get of the message"),
    RequestCode.QUERY_MESSAGE: _names(SUB | GET, topic="topic"),
    RequestCode.QUERY_CONSUME_QUEUE: _both(GET, more=("consumerGroup",)),
    # clients
    RequestCode.HEART_BEAT: Rule(
        body_rights.heartbeat, "for each group: Group Sub, and Topic Sub of its topics"
    ),
    RequestCode.UNREGISTER_CLIENT: Rule(_unregistered, "Group Sub of a consumer"),
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: _names(SUB | GET, group="consumerGroup"),
    RequestCode.CHECK_CLIENT_CONFIG: Rule(body_rights.client_config, "Group Sub and Topic Sub"),
    RequestCode.LOCK_BATCH_MQ: Rule(body_rights.locked, "Group Sub, and Topic Sub of each queue"),
    RequestCode.UNLOCK_BATCH_MQ: Rule(body_rights.locked, "Group Sub, and Topic Sub of each queue"),
    RequestCode.QUERY_ASSIGNMENT: Rule(body_rights.assigned, "Group Sub and Topic Sub"),
    RequestCode.SET_MESSAGE_REQUEST_MODE: Rule(body_rights.request_mode, "Group Update and Topic Update"),
    RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: _cluster(GET),
    # POP
    RequestCode.POP_MESSAGE: _both(SUB),
    RequestCode.PEEK_MESSAGE: _both(SUB),
    RequestCode.ACK_MESSAGE: Rule(_acknowledged, "Topic Sub and Group Sub"),
    RequestCode.BATCH_ACK_MESSAGE: Rule(body_rights.acknowledged, "for each entry: Group Sub and Topic Sub"),
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: Rule(_acknowledged, "Topic Sub and Group Sub"),
    RequestCode.NOTIFICATION: _both(SUB),
    RequestCode.POP_LITE_MESSAGE: _both(SUB),
    RequestCode.LITE_SUBSCRIPTION_CTL: Rule(
        body_rights.lite_subscriptions, "for each entry: Group Sub and Topic Sub"
    ),
    RequestCode.POLLING_INFO: _both(GET),
    RequestCode.POP_ROLLBACK: _cluster(UPDATE),
    # offsets
    RequestCode.QUERY_CONSUMER_OFFSET: Rule(_queried(SUB | GET), "Topic Sub or Get, and Group Sub or Get"),
    RequestCode.UPDATE_CONSUMER_OFFSET: Rule(
        _queried(SUB | UPDATE), "Topic Sub or Update, and Group Sub or Update"
    ),
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: _names(GET, topic="topic"),
    RequestCode.GET_MAX_OFFSET: _names(GET, topic="topic"),
    RequestCode.GET_MIN_OFFSET: _names(GET, topic="topic"),
    RequestCode.GET_EARLIEST_MSG_STORETIME: _names(GET, topic="topic"),
    RequestCode.GET_ALL_CONSUMER_OFFSET: _cluster(GET),
    RequestCode.GET_ALL_DELAY_OFFSET: _cluster(GET),
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: _admin(UPDATE),
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: _admin(GET),
    RequestCode.QUERY_CORRECTION_OFFSET: Rule(_corrected, "Topic Get, and Group Get of all groups named"),
    RequestCode.CLONE_GROUP_OFFSET: Rule(_cloned, "Group Update of both groups, Topic Update"),
    # topics
    RequestCode.UPDATE_AND_CREATE_TOPIC: _names(CREATE, topic="topic"),
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: Rule(body_rights.topics, "Topic Create of each topic"),
    RequestCode.DELETE_TOPIC_IN_BROKER: _names(DELETE, topic="topic"),
    RequestCode.GET_TOPIC_STATS_INFO: _names(GET, topic="topic"),
    RequestCode.GET_TOPIC_CONFIG: _names(GET, topic="topic"),
    RequestCode.GET_ALL_TOPIC_CONFIG: _cluster(GET),
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: _cluster(GET),
    # groups
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: Rule(body_rights.group, "Group Create"),
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: Rule(
        body_rights.groups, "Group Create of each group"
    ),
    RequestCode.DELETE_SUBSCRIPTIONGROUP: _names(DELETE, group="groupName"),
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: _cluster(GET),
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: _names(GET, group="group"),
    RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: _admin(UPDATE),
    # inspection
    RequestCode.GET_CONSUMER_CONNECTION_LIST: _names(GET, group="consumerGroup"),
    RequestCode.GET_PRODUCER_CONNECTION_LIST: _cluster(GET),
    RequestCode.GET_CONSUME_STATS: Rule(_stats, "Group Get, and Topic Get of the topics named"),
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: _names(GET, topic="topic"),
    RequestCode.QUERY_CONSUME_TIME_SPAN: _admin(GET),
    RequestCode.GET_CONSUMER_RUNNING_INFO: _names(GET, group="consumerGroup"),
    RequestCode.CONSUME_MESSAGE_DIRECTLY: Rule(_consumed_directly, "Group Sub, and Topic Sub of the message"),
    RequestCode.GET_BROKER_CONSUME_STATS: _cluster(GET),
    RequestCode.GET_ALL_PRODUCER_INFO: _cluster(GET),
    RequestCode.QUERY_TOPICS_BY_CONSUMER: _names(GET, group="group"),
    RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: _admin(GET, more=("topic",)),
    RequestCode.VIEW_BROKER_STATS_DATA: _cluster(GET),
    # lite topics
    RequestCode.GET_BROKER_LITE_INFO: _cluster(GET),
    RequestCode.GET_PARENT_TOPIC_INFO: _names(GET, topic="topic"),
    RequestCode.GET_LITE_TOPIC_INFO: _names(GET, topic="parentTopic"),
    RequestCode.GET_LITE_CLIENT_INFO: _names(GET, topic="parentTopic", group="group"),
    RequestCode.GET_LITE_GROUP_INFO: _names(GET, group="group"),
    RequestCode.TRIGGER_LITE_DISPATCH: _names(UPDATE, group="group"),
    # the broker
    RequestCode.UPDATE_BROKER_CONFIG: _cluster(UPDATE),
    RequestCode.GET_BROKER_CONFIG: _cluster(GET),
    RequestCode.GET_BROKER_RUNTIME_INFO: _cluster(GET),
    RequestCode.GET_TIMER_CHECK_POINT: _cluster(GET),
    RequestCode.GET_TIMER_METRICS: _cluster(GET),
    RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: _cluster(UPDATE),
    RequestCode.CLEAN_UNUSED_TOPIC: _cluster(UPDATE),
    RequestCode.DELETE_EXPIRED_COMMITLOG: _cluster(UPDATE),
    RequestCode.GET_BROKER_HA_STATUS: _cluster(GET),
    RequestCode.EXCHANGE_BROKER_HA_INFO: _cluster(UPDATE),
    RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE: _cluster(UPDATE),
    RequestCode.RESET_MASTER_FLUSH_OFFSET: _cluster(UPDATE),
    RequestCode.GET_BROKER_EPOCH_CACHE: _cluster(GET),
    RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG: _cluster(UPDATE),
    RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG: _cluster(UPDATE),
    RequestCode.GET_COLD_DATA_FLOW_CTR_INFO: _cluster(GET),
    RequestCode.SET_COMMITLOG_READ_MODE: _cluster(UPDATE),
    RequestCode.SWITCH_TIMER_ENGINE: _cluster(UPDATE),
    # of FireArrow alone
    RequestCode.TRIM_TOPIC: _names(DELETE, topic="topic"),
    RequestCode.LIST_PENDING_TIMERS: _listed(topic=True),
    RequestCode.LIST_HALF_MESSAGES: _cluster(GET),
    RequestCode.LIST_QUEUE_LOCKS: _listed(group=True),
    RequestCode.LIST_POP_IN_FLIGHT: _admin(GET, more=("topic",)),
    RequestCode.GET_LAG: _listed(topic=True, group=True),
    RequestCode.LIST_REFUSALS: _cluster(GET),
    RequestCode.GET_STATUS: _cluster(GET),
    RequestCode.GET_HISTORY: _cluster(GET),
    RequestCode.GET_LOG: _cluster(GET),
    RequestCode.LIST_CONNECTIONS: _cluster(GET),
    RequestCode.CLOSE_CONNECTION: _cluster(UPDATE),
    RequestCode.GET_MACHINE: _cluster(GET),
    RequestCode.UPDATE_QUOTA: _cluster(UPDATE),
    RequestCode.GET_QUOTAS: _cluster(GET),
    RequestCode.PROMOTE_BROKER: _cluster(UPDATE),
    RequestCode.FENCE_BROKER: _cluster(UPDATE),
    RequestCode.REBUILD_REPLICA: _cluster(UPDATE),
    RequestCode.FORGET_REPLICA: _cluster(UPDATE),
    RequestCode.LIST_TOPICS: _cluster(GET),
    RequestCode.LIST_GROUPS: _cluster(GET),
    RequestCode.LIST_BROKER_FAULTS: _cluster(GET),
    # users and rules
    RequestCode.AUTH_CREATE_USER: _cluster(UPDATE),
    RequestCode.AUTH_UPDATE_USER: _cluster(UPDATE),
    RequestCode.AUTH_DELETE_USER: _cluster(UPDATE),
    RequestCode.AUTH_GET_USER: _cluster(GET),
    RequestCode.AUTH_LIST_USER: _cluster(GET),
    RequestCode.AUTH_CREATE_ACL: _cluster(UPDATE),
    RequestCode.AUTH_UPDATE_ACL: _cluster(UPDATE),
    RequestCode.AUTH_DELETE_ACL: _cluster(UPDATE),
    RequestCode.AUTH_GET_ACL: _cluster(GET),
    RequestCode.AUTH_LIST_ACL: _cluster(GET),
    # accounts of plain_acl.yml
    RequestCode.UPDATE_AND_CREATE_ACL_CONFIG: _cluster(UPDATE),
    RequestCode.DELETE_ACL_CONFIG: _cluster(UPDATE),
    RequestCode.GET_BROKER_CLUSTER_ACL_INFO: _cluster(GET),
    RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: _cluster(UPDATE),
    RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG: _cluster(UPDATE),
    # the name server in this process
    RequestCode.GET_ROUTEINFO_BY_TOPIC: Rule(
        _route, "Topic Pub, Sub or Get; a retry topic: Group Sub or Get; a system topic: nothing"
    ),
    RequestCode.GET_BROKER_CLUSTER_INFO: _cluster(GET),
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: _cluster(GET),
    RequestCode.GET_TOPICS_BY_CLUSTER: _cluster(GET),
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: _cluster(GET),
    RequestCode.GET_UNIT_TOPIC_LIST: _cluster(GET),
    RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: _cluster(GET),
    RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: _cluster(GET),
    RequestCode.GET_BROKER_MEMBER_GROUP: _cluster(GET),
    RequestCode.REGISTER_BROKER: _cluster(UPDATE),
    RequestCode.UNREGISTER_BROKER: _cluster(UPDATE),
    RequestCode.QUERY_DATA_VERSION: _cluster(UPDATE),
    RequestCode.BROKER_HEARTBEAT: _cluster(UPDATE),
    RequestCode.PUT_KV_CONFIG: _cluster(UPDATE),
    RequestCode.GET_KV_CONFIG: _cluster(GET),
    RequestCode.DELETE_KV_CONFIG: _cluster(UPDATE),
    RequestCode.GET_KVLIST_BY_NAMESPACE: _cluster(GET),
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: _cluster(UPDATE),
    RequestCode.ADD_WRITE_PERM_OF_BROKER: _cluster(UPDATE),
    RequestCode.DELETE_TOPIC_IN_NAMESRV: _cluster(UPDATE),
    RequestCode.REGISTER_TOPIC_IN_NAMESRV: _cluster(UPDATE),
    RequestCode.UPDATE_NAMESRV_CONFIG: _cluster(UPDATE),
    RequestCode.GET_NAMESRV_CONFIG: _cluster(GET),
}

CLOSED = frozenset(
    (
        *(RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2, RequestCode.LITE_PULL_MESSAGE),
        *(RequestCode.CONSUMER_SEND_MSG_BACK, RequestCode.END_TRANSACTION, RequestCode.RECALL_MESSAGE),
        *(RequestCode.VIEW_MESSAGE_BY_ID, RequestCode.RESUME_CHECK_HALF_MESSAGE),
        *(
            RequestCode.CHECK_CLIENT_CONFIG,
            RequestCode.QUERY_ASSIGNMENT,
            RequestCode.SET_MESSAGE_REQUEST_MODE,
        ),
        *(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE, RequestCode.BATCH_ACK_MESSAGE, RequestCode.POP_ROLLBACK),
        *(RequestCode.GET_ALL_CONSUMER_OFFSET, RequestCode.GET_ALL_DELAY_OFFSET),
        *(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, RequestCode.GET_ALL_TOPIC_CONFIG),
        *(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG),
        *(
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        ),
        *(
            RequestCode.CONSUME_MESSAGE_DIRECTLY,
            RequestCode.UPDATE_BROKER_CONFIG,
            RequestCode.GET_BROKER_CONFIG,
        ),
        *(
            RequestCode.GET_BROKER_RUNTIME_INFO,
            RequestCode.GET_TIMER_CHECK_POINT,
            RequestCode.GET_TIMER_METRICS,
        ),
        *(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, RequestCode.CLEAN_UNUSED_TOPIC),
        *(RequestCode.DELETE_EXPIRED_COMMITLOG, RequestCode.GET_BROKER_HA_STATUS),
        *(RequestCode.GET_BROKER_EPOCH_CACHE, RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG),
        *(RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG, RequestCode.GET_COLD_DATA_FLOW_CTR_INFO),
        *(RequestCode.SET_COMMITLOG_READ_MODE, RequestCode.SWITCH_TIMER_ENGINE),
        *(RequestCode.LITE_SUBSCRIPTION_CTL, RequestCode.GET_BROKER_LITE_INFO),
        *(RequestCode.GET_PARENT_TOPIC_INFO, RequestCode.GET_LITE_TOPIC_INFO),
        *(
            RequestCode.GET_LITE_CLIENT_INFO,
            RequestCode.GET_LITE_GROUP_INFO,
            RequestCode.TRIGGER_LITE_DISPATCH,
        ),
    )
)
"""Codes that Apache's broker serves to every user, or for a topic that the request names but does not use."""

OTHERS = _cluster(UPDATE)
"""The rule of a code that is not in the table."""


def rule_of(code: int) -> Rule:
    return RULES.get(code, OTHERS)


def needs_of(request: RemotingCommand, facts: Facts) -> Iterator[Need]:
    """What the request needs. ValueError: a field that states it is missing or malformed, or there are too many."""
    for count, need in enumerate(rule_of(request.code).needs(request, facts), 1):
        if count > NEEDS_MAX:
            raise ValueError(
                f"the request needs more than {NEEDS_MAX} rights: name fewer topics and groups in it"
            )
        yield need
