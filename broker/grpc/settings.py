"""Settings of clients: which may register, the heartbeat of remoting that states the same, and what the server adds.

Pure functions; Apache: GrpcClientSettingsManager.
"""

from typing import Any, NamedTuple

from firearrow._native.protocol import name_rules
from firearrow._native.protocol.fastjson import dumps
from firearrow.broker.base.options import Options
from firearrow.broker.grpc.messages import CLIENT_TYPES, ProtoMessage, filter_of, milliseconds, set_ms
from firearrow.broker.grpc.statuses import GrpcRefusal, group_name, known_group, topic_name
from firearrow.broker.tables.groups import GroupConfig, GroupTable
from firearrow.broker.tables.json_fields import INT_MAX
from firearrow.broker.tables.subscriptions import InvalidSubscription, Subscription

TOPICS_MAX = 1000
BYTES_MAX = 256 << 10
PRODUCER, PUSH, SIMPLE, PULL, LITE_PUSH = (
    CLIENT_TYPES[name]
    for name in ("PRODUCER", "PUSH_CONSUMER", "SIMPLE_CONSUMER", "PULL_CONSUMER", "LITE_PUSH_CONSUMER")
)
NAMES = {number: name for name, number in CLIENT_TYPES.items()}
PRODUCER_ATTEMPTS = 3
PRODUCER_BACKOFF_MS = (10, 1000)
BATCH_MAX, POLL_MS_MAX = 32, 20_000
"""Messages of one receive, and how long it may wait for them."""
MINUTE = 60_000
RETRY_MS = (
    1000, 5000, 10_000, 30_000, *(n * MINUTE for n in range(1, 11)),
    20 * MINUTE, 30 * MINUTE, 60 * MINUTE, 120 * MINUTE,
)  # fmt: skip
RETRIES_MAX = 64
DELAY_MS_MAX = 7 * 86_400_000


class WrongClientType(Exception):
    """No client of this type is served; the text names it."""


class ClientSettings(NamedTuple):
    """What is kept of a client's settings, which may have 256 KiB that nothing needs. `groups`: that it is in, as
    fields of UNREGISTER_CLIENT."""

    client_type: int
    is_consumer: bool
    request_timeout_ms: int
    groups: frozenset[tuple[str, str]]

    @staticmethod
    def of(settings: ProtoMessage) -> "ClientSettings":
        is_consumer = not settings.HasField("publishing")
        if is_consumer:
            groups = frozenset({("consumerGroup", settings.subscription.group.name)})
        else:
            groups = frozenset(("producerGroup", topic.name) for topic in settings.publishing.topics)
        timeout_ms = milliseconds(settings.request_timeout)
        return ClientSettings(settings.client_type, is_consumer, timeout_ms, groups)


def check(settings: ProtoMessage) -> None:
    """GrpcRefusal: they are too long, or names are wrong."""
    if settings.ByteSize() > BYTES_MAX:
        raise GrpcRefusal("BAD_REQUEST", f"settings of {settings.ByteSize()} bytes, at most {BYTES_MAX}")
    if settings.HasField("publishing"):
        _check_count(len(settings.publishing.topics))
        for topic in settings.publishing.topics:
            topic_name(topic.name)
        return
    subscription = settings.subscription
    group_name(subscription.group.name)
    _check_count(len(subscription.subscriptions))
    for entry in subscription.subscriptions:
        topic_name(entry.topic.name)


def check_consumer(settings: ProtoMessage, groups: GroupTable) -> None:
    """Whether its group can have such a consumer; of a producer, nothing. GrpcRefusal, WrongClientType."""
    if settings.HasField("publishing"):
        return
    config = known_group(groups, settings.subscription.group.name)
    group = config.name
    if settings.client_type not in (PUSH, SIMPLE, PULL, LITE_PUSH):
        name = NAMES.get(settings.client_type, str(settings.client_type))
        raise WrongClientType(f"Client type is not consumer, type: {name}")
    is_lite = settings.client_type == LITE_PUSH
    if is_lite and not config.lite_topic:
        raise GrpcRefusal("ILLEGAL_CONSUMER_GROUP", f"regular group cannot use LITE mode: {group}")
    if config.lite_topic and not is_lite:
        raise GrpcRefusal("ILLEGAL_CONSUMER_GROUP", f"lite group must use LITE mode: {group}")
    for entry in settings.subscription.subscriptions[:1]:
        check_lite_topic(config, entry.topic.name)


def check_lite_topic(group: GroupConfig, topic: str) -> None:
    """GrpcRefusal: a group of lite topics has another topic; others may have any."""
    if group.lite_topic and group.lite_topic != topic:
        text = f"lite group {group.name} is expected to bind topic {group.lite_topic}, but actual is {topic}"
        raise GrpcRefusal("ILLEGAL_TOPIC", text)


def _check_count(topics: int) -> None:
    if topics > TOPICS_MAX:
        raise GrpcRefusal("BAD_REQUEST", f"{topics} topics in the settings, at most {TOPICS_MAX} are allowed")


def heartbeat(settings: ProtoMessage, client_id: str, version: int) -> bytes:
    """The body of HEART_BEAT with the client's groups. `version`: of its subscriptions. GrpcRefusal."""
    body: dict[str, Any] = {"clientID": client_id, "consumerDataSet": [], "producerDataSet": []}
    if settings.HasField("publishing"):
        names = dict.fromkeys(topic.name for topic in settings.publishing.topics)
        body["producerDataSet"] = [{"groupName": name} for name in names]
        return dumps(body)
    subscriptions = []
    for entry in settings.subscription.subscriptions:
        expression, kind = filter_of(entry.expression)
        try:
            found = Subscription.of_expression(entry.topic.name, expression, version, kind)
        except InvalidSubscription as error:
            raise GrpcRefusal("ILLEGAL_FILTER_EXPRESSION", str(error)) from None
        subscriptions.append(found.to_object())
    consumer = {
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "consumeType": "CONSUME_PASSIVELY"
        if settings.client_type in (PUSH, LITE_PUSH)
        else "CONSUME_ACTIVELY",
        "groupName": settings.subscription.group.name,
        "messageModel": "LITE_SELECTIVE" if settings.client_type == LITE_PUSH else "CLUSTERING",
        "subscriptionDataSet": subscriptions,
        "unitMode": False,
    }
    body["consumerDataSet"] = [consumer]
    return dumps(body)


def completed(settings: ProtoMessage, group: GroupConfig | None, options: Options) -> ProtoMessage:
    """The client's settings with those that the server decides."""
    found = type(settings)()
    found.CopyFrom(settings)
    found.metric.on = False
    if found.HasField("publishing"):
        found.publishing.max_body_size = options.max_message_bytes
        found.publishing.validate_message_type = True
        found.backoff_policy.max_attempts = PRODUCER_ATTEMPTS
        _set_exponential(found.backoff_policy.exponential_backoff, *PRODUCER_BACKOFF_MS, 2.0)
        return found
    config = group or GroupConfig(found.subscription.group.name)
    found.subscription.fifo = config.consume_orderly
    found.subscription.receive_batch_size = BATCH_MAX
    set_ms(found.subscription.long_polling_timeout, POLL_MS_MAX)
    found.subscription.lite_subscription_quota = min(config.lite_quota, INT_MAX)
    found.subscription.max_lite_topic_size = name_rules.LITE_TOPIC_CHARS_MAX
    found.backoff_policy.max_attempts = max(config.retry_max_times, 0) + 1
    _set_retries(found.backoff_policy, config.retry_policy)
    return found


def _set_retries(policy: ProtoMessage, stated: dict[str, Any]) -> None:
    """By the group's `groupRetryPolicy`; what is wrong there counts as the default."""
    exponential = stated.get("exponentialRetryPolicy")
    if stated.get("type") == "EXPONENTIAL" and isinstance(exponential, dict):
        initial, longest = exponential.get("initial", 5000), exponential.get("max", 7_200_000)
        multiplier = exponential.get("multiplier", 2)
        if _are_delays((initial, longest)) and isinstance(multiplier, int | float):
            return _set_exponential(policy.exponential_backoff, initial, longest, float(multiplier))
    customized = stated.get("customizedRetryPolicy")
    delays = customized.get("next") if isinstance(customized, dict) else None
    if not isinstance(delays, list) or not delays or not _are_delays(tuple(delays[:RETRIES_MAX])):
        delays = list(RETRY_MS)
    policy.ClearField("strategy")
    for delay in delays[:RETRIES_MAX]:
        set_ms(policy.customized_backoff.next.add(), delay)
    return None


def _are_delays(values: tuple[object, ...]) -> bool:
    return all(type(value) is int and 0 <= value <= DELAY_MS_MAX for value in values)


def _set_exponential(backoff: ProtoMessage, initial_ms: int, longest_ms: int, multiplier: float) -> None:
    set_ms(backoff.initial, initial_ms)
    set_ms(backoff.max, longest_ms)
    backoff.multiplier = multiplier
