"""What requests need whose body names topics and groups. Pure functions.

Bodies are read as their handlers read them. A malformed one is a ValueError: its handler would refuse it as well.
"""

from collections.abc import Iterator

from firearrow._native.protocol import name_rules
from firearrow._native.protocol.access_model import Action, Resource
from firearrow._native.protocol.fastjson import loads_body, message_queue
from firearrow._native.protocol.policy_decision import Need
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.tables import json_fields
from firearrow.broker.tables.subscriptions import HeartbeatData
from firearrow.broker.timers.recall_handle import InvalidRecallHandle, RecallHandle

SUB, CREATE, UPDATE, PUB = Action.SUB, Action.CREATE, Action.UPDATE, Action.PUB


def topic_need(name: str, actions: Action) -> Need:
    """A retry topic counts as its group."""
    if name.startswith(name_rules.RETRY_PREFIX):
        return Need(Resource.group(name), actions)
    return Need(Resource.topic(name), actions)


def group_need(name: str, actions: Action) -> Need:
    return Need(Resource.group(name), actions)


def sent(topic: str) -> Iterator[Need]:
    """A retry topic is written by the members of its group."""
    yield topic_need(topic, SUB if topic.startswith(name_rules.RETRY_PREFIX) else PUB)


def consumed(group: str, topic: str, actions: Action) -> Iterator[Need]:
    yield topic_need(topic, actions)
    if topic != name_rules.retry_topic(group):
        yield group_need(group, actions)


def heartbeat(request: RemotingCommand, _: object) -> Iterator[Need]:
    """Of producers, nothing."""
    for consumer in HeartbeatData.read(request.body).consumers:
        yield group_need(consumer.group, SUB)
        for raw in consumer.raw_subscriptions:
            topic = json_fields.text(json_fields.members(raw, "subscriptionDataSet"), "topic")
            yield topic_need(topic, SUB)


def client_config(request: RemotingCommand, _: object) -> Iterator[Need]:
    if not request.body:
        return
    body = json_fields.members_or_none(loads_body(request.body), "body")
    if group := body.get("group"):
        yield group_need(str(group), SUB)
    subscription = json_fields.members_or_none(body.get("subscriptionData"), "subscriptionData")
    if topic := subscription.get("topic"):
        yield topic_need(str(topic), SUB)


def locked(request: RemotingCommand, _: object) -> Iterator[Need]:
    body = _body(request)
    yield group_need(json_fields.text(body, "consumerGroup"), SUB)
    topics: set[str] = set()
    for raw in json_fields.items(body.get("mqSet"), "mqSet"):
        queue = message_queue(raw)
        if queue is None:
            raise ValueError("mqSet has a member that is not a message queue")
        topics.add(queue.topic)
    for topic in sorted(topics):
        yield topic_need(topic, SUB)


def assigned(request: RemotingCommand, _: object) -> Iterator[Need]:
    body = _body(request)
    yield from consumed(json_fields.text(body, "consumerGroup"), json_fields.text(body, "topic"), SUB)


def request_mode(request: RemotingCommand, _: object) -> Iterator[Need]:
    body = _body(request)
    yield from consumed(json_fields.text(body, "consumerGroup"), json_fields.text(body, "topic"), UPDATE)


def acknowledged(request: RemotingCommand, _: object) -> Iterator[Need]:
    """Batches of acknowledgements; members have short or long names."""
    entries = json_fields.items(_body(request).get("acks") if request.body else None, "acks")
    pairs: set[tuple[str, str]] = set()
    for raw in entries:
        entry = json_fields.members(raw, "acks")
        group = json_fields.text(entry, "c" if "c" in entry else "consumerGroup")
        pairs.add((group, json_fields.text(entry, "t" if "t" in entry else "topic")))
    for group, topic in sorted(pairs):
        yield from consumed(group, topic, SUB)


def lite_subscriptions(request: RemotingCommand, _: object) -> Iterator[Need]:
    entries = json_fields.items(
        _body(request).get("subscriptionSet") if request.body else None, "subscriptionSet"
    )
    pairs: set[tuple[str, str]] = set()
    for raw in entries:
        entry = json_fields.members(raw, "subscriptionSet")
        pairs.add((json_fields.text(entry, "group", ""), json_fields.text(entry, "topic", "")))
    for group, topic in sorted(pairs):
        yield from consumed(group, topic, SUB)


def topics(request: RemotingCommand, _: object) -> Iterator[Need]:
    for raw in json_fields.items(_body(request).get("topicConfigList"), "topicConfigList"):
        config = json_fields.members(raw, "topicConfigList")
        yield topic_need(json_fields.text(config, "topicName"), CREATE)


def group(request: RemotingCommand, _: object) -> Iterator[Need]:
    yield group_need(json_fields.text(_body(request), "groupName"), CREATE)


def groups(request: RemotingCommand, _: object) -> Iterator[Need]:
    for raw in json_fields.items(_body(request).get("groupConfigList"), "groupConfigList"):
        config = json_fields.members(raw, "groupConfigList")
        yield group_need(json_fields.text(config, "groupName"), CREATE)


def recalled(request: RemotingCommand, _: object) -> Iterator[Need]:
    """The topic that the request names, and the one in the handle, in which the message is."""
    named = {request.text("topic")}
    try:
        named.add(RecallHandle.parse(request.text("recallHandle")).topic)
    except InvalidRecallHandle:
        pass
    for topic in sorted(named):
        yield topic_need(topic, PUB)


def _body(request: RemotingCommand) -> json_fields.Members:
    return json_fields.members(loads_body(request.body), "body")


def fast_needs(topic: str, group: str | None) -> list[Need]:
    """Of a send to the topic, or a pull of it for the group."""
    return list(sent(topic) if group is None else consumed(group, topic, Action.SUB))
