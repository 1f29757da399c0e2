"""GrpcRefusal: why a call is refused; and the codes of gRPC clients for those of remoting.

Loads nothing that only clients of gRPC need: the broker's table of receipt handles uses it.
"""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from firearrow._native.protocol import name_rules
from firearrow._native.wire.codes import ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.tables.groups import GroupConfig, GroupTable
from firearrow.broker.tables.topics import TopicConfig, TopicTable

_CODES: dict[int, str] = {
    ResponseCode.SUCCESS: "OK",
    ResponseCode.SYSTEM_BUSY: "TOO_MANY_REQUESTS",
    ResponseCode.FLOW_CONTROL: "TOO_MANY_REQUESTS",
    ResponseCode.POLLING_FULL: "TOO_MANY_REQUESTS",
    ResponseCode.FLUSH_DISK_TIMEOUT: "MASTER_PERSISTENCE_TIMEOUT",
    ResponseCode.FLUSH_SLAVE_TIMEOUT: "SLAVE_PERSISTENCE_TIMEOUT",
    ResponseCode.SLAVE_NOT_AVAILABLE: "HA_NOT_AVAILABLE",
    ResponseCode.TOPIC_NOT_EXIST: "TOPIC_NOT_FOUND",
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: "CONSUMER_GROUP_NOT_FOUND",
    ResponseCode.SUBSCRIPTION_PARSE_FAILED: "ILLEGAL_FILTER_EXPRESSION",
    ResponseCode.NO_PERMISSION: "FORBIDDEN",
    ResponseCode.LMQ_QUOTA_EXCEEDED: "LITE_TOPIC_QUOTA_EXCEEDED",
    ResponseCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED: "LITE_SUBSCRIPTION_QUOTA_EXCEEDED",
}
"""Of remoting → of gRPC. Others become INTERNAL_SERVER_ERROR, as at Apache's proxy."""
JAVA_CLASS = re.compile(r"(?:[a-z][a-z0-9_]*\.)+[A-Z]\w*: ")
"""Apache's remarks may begin with the class of an exception, and ours for its clients of remoting as well."""
RESOURCE_BYTES_MAX = 1024
TOPIC_CHARS_MAX, GROUP_CHARS_MAX = name_rules.TOPIC_CHARS_MAX, name_rules.GROUP_CHARS_MAX


class GrpcRefusal(Exception):
    """A call is refused: the name of its code, and what to do. `delay_s`: the answer waits so long."""

    def __init__(self, code: str, text: str, delay_s: float = 0.0) -> None:
        super().__init__(code, text)
        self.code = code
        self.text = text
        self.delay_s = delay_s


def code_of(answer: RemotingCommand) -> str:
    """The name of the code for an answer of remoting."""
    return _CODES.get(answer.code, "INTERNAL_SERVER_ERROR")


def refusal_of(answer: RemotingCommand) -> GrpcRefusal:
    """Of an answer of remoting that states a failure."""
    return GrpcRefusal(code_of(answer), readable(answer.remark or f"code {answer.code}"))


def readable(remark: str) -> str:
    """Without the name of a Java class that it begins with."""
    found = JAVA_CLASS.match(remark)
    return remark if found is None else remark[found.end() :]


def expect(answer: RemotingCommand) -> RemotingCommand:
    """The answer, if it is a success. GrpcRefusal."""
    if answer.code != ResponseCode.SUCCESS:
        raise refusal_of(answer)
    return answer


class NameRules(NamedTuple):
    """Which names clients may use. The words are those of Apache's proxy."""

    code: str
    kind: str
    whose: str
    chars_max: int
    fault: Callable[[str], str | None]
    is_system: Callable[[str], bool]
    system: str


TOPIC_NAMES = NameRules(
    "ILLEGAL_TOPIC",
    "topic",
    "The specified topic",
    TOPIC_CHARS_MAX,
    name_rules.topic_fault,
    name_rules.is_system_topic,
    "cannot access system topic",
)
GROUP_NAMES = NameRules(
    "ILLEGAL_CONSUMER_GROUP",
    "group",
    "the specified group",
    GROUP_CHARS_MAX,
    name_rules.group_fault,
    name_rules.is_system_group,
    "cannot use system consumer group",
)


def _checked(name: str, rules: NameRules) -> str:
    """GrpcRefusal."""
    text = ""
    if not name.strip():
        text = f"{rules.whose} is blank"
    elif len(name) > rules.chars_max:
        text = f"{rules.whose} is longer than {rules.kind} max length {rules.chars_max}."
    elif rules.fault(name) is not None:
        text = f"{rules.whose}[{name}] contains illegal characters, allowing only {name_rules.ALPHABET}"
    elif rules.is_system(name):
        text = rules.system
    if text:
        raise GrpcRefusal(rules.code, text)
    return name


def topic_name(name: str) -> str:
    """A topic that clients may name. GrpcRefusal."""
    return _checked(name, TOPIC_NAMES)


def echoed_topic(resource: Any) -> str:  # noqa: ANN401
    """The name of a topic whose Resource goes back with each queue or message. GrpcRefusal."""
    name = topic_name(resource.name)
    size = resource.ByteSize()
    if size > RESOURCE_BYTES_MAX:
        text = f"The specified topic has a resource of {size} bytes, at most {RESOURCE_BYTES_MAX} are allowed"
        raise GrpcRefusal("ILLEGAL_TOPIC", text)
    return name


def group_name(name: str) -> str:
    """A consumer group that clients may name. GrpcRefusal."""
    return _checked(name, GROUP_NAMES)


def lite_topic_name(name: str) -> str:
    """GrpcRefusal."""
    fault = name_rules.lite_fault(name)
    if fault is not None:
        raise GrpcRefusal("ILLEGAL_LITE_TOPIC", fault)
    return name


def known_topic(topics: TopicTable, name: str) -> TopicConfig:
    """GrpcRefusal: there is none; gRPC clients create no topics."""
    topic = topics.get(name)
    if topic is None:
        raise GrpcRefusal("TOPIC_NOT_FOUND", f"No topic route info in name server for the topic: {name}")
    return topic


def known_group(groups: GroupTable, name: str) -> GroupConfig:
    """GrpcRefusal: there is none; gRPC clients create no groups."""
    group = groups.get(name)
    if group is None:
        raise GrpcRefusal("CONSUMER_GROUP_NOT_FOUND", f"group not found: {name}")
    return group
