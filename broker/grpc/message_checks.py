"""MessageChecks: what Apache's proxy asks of a message before it is sent, with its limits and words. Loop thread."""

import re

from firearrow.broker.base.clock import Clock
from firearrow.broker.base.config import Config
from firearrow.broker.grpc import messages
from firearrow.broker.grpc.message_codec import NOT_SETTABLE
from firearrow.broker.grpc.messages import ProtoMessage, milliseconds
from firearrow.broker.grpc.statuses import GrpcRefusal, lite_topic_name

PROPERTIES_MAX = 128
PROPERTY_BYTES_MAX = 16_384
"""Of names and values of all user properties, the tag and the keys."""
GROUP_BYTES_MAX = 63
DELAY_MS_MAX = 86_400_000
RECOVERY_S_MAX = 3600
ID_CHARS_MAX = 255
TIME_MS_MAX = 253_402_300_799_999
"""The end of 9999. Libraries of protobuf refuse later times, also those of consumers."""
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class MessageChecks:
    def __init__(self, config: Config, clock: Clock) -> None:
        self._config = config
        self._clock = clock

    def check(self, message: ProtoMessage) -> None:
        """GrpcRefusal."""
        own = message.system_properties
        body_max = self._config.options.max_message_bytes
        if not message.body:
            raise GrpcRefusal("MESSAGE_BODY_EMPTY", "message body cannot be empty")
        if len(message.body) > body_max:
            raise GrpcRefusal("MESSAGE_BODY_TOO_LARGE", f"message body cannot exceed the max {body_max}")
        if not own.message_id.strip():
            raise GrpcRefusal("ILLEGAL_MESSAGE_ID", "message id cannot be empty")
        if CONTROL.search(own.message_id) or len(own.message_id) > ID_CHARS_MAX:
            raise GrpcRefusal("ILLEGAL_MESSAGE_ID", "message id is too long or has control characters")
        self._check_names(message)
        self._check_properties(message)
        self._check_times(own)

    def _check_names(self, message: ProtoMessage) -> None:
        own = message.system_properties
        if own.HasField("tag"):
            _check_text("tag", own.tag, "ILLEGAL_MESSAGE_TAG")
            if "|" in own.tag:
                raise GrpcRefusal("ILLEGAL_MESSAGE_TAG", "tag cannot contain '|'")
        for key in own.keys:
            _check_text("key", key, "ILLEGAL_MESSAGE_KEY")
        if own.HasField("message_group"):
            _check_text("message group", own.message_group, "ILLEGAL_MESSAGE_GROUP")
            if len(own.message_group.encode("utf-8", "replace")) > GROUP_BYTES_MAX:
                text = f"message group exceed the max size {GROUP_BYTES_MAX + 1}"
                raise GrpcRefusal("ILLEGAL_MESSAGE_GROUP", text)
        if own.HasField("lite_topic"):
            lite_topic_name(own.lite_topic)
        for name in ("trace_context", "born_host"):
            if CONTROL.search(getattr(own, name)):
                raise GrpcRefusal("ILLEGAL_MESSAGE_PROPERTY_KEY", f"{name} cannot contain control character")

    def _check_properties(self, message: ProtoMessage) -> None:
        if len(message.user_properties) > PROPERTIES_MAX:
            text = f"too many user properties, max is {PROPERTIES_MAX}"
            raise GrpcRefusal("MESSAGE_PROPERTIES_TOO_LARGE", text)
        own = message.system_properties
        size = len(own.tag) + sum(map(len, own.keys))
        for name, value in message.user_properties.items():
            size += len(name.encode("utf-8", "replace")) + len(value.encode("utf-8", "replace"))
            if name in NOT_SETTABLE:
                raise GrpcRefusal("ILLEGAL_MESSAGE_PROPERTY_KEY", f"property is used by system: {name}")
            for what, text in (("key", name), ("value", value)):
                if CONTROL.search(text):
                    refused = f"the {what} of property cannot contain control character"
                    raise GrpcRefusal("ILLEGAL_MESSAGE_PROPERTY_KEY", refused)
        if size > PROPERTY_BYTES_MAX:
            refused = f"the total size of user property is too large, max is {PROPERTY_BYTES_MAX}"
            raise GrpcRefusal("MESSAGE_PROPERTIES_TOO_LARGE", refused)

    def _check_times(self, own: ProtoMessage) -> None:
        if not 0 <= milliseconds(own.born_timestamp) <= TIME_MS_MAX:
            raise GrpcRefusal("BAD_REQUEST", "the born timestamp is not between 1970 and 9999")
        if own.HasField("delivery_timestamp"):
            due_ms = milliseconds(own.delivery_timestamp)
            if due_ms - self._clock.now_ms() > DELAY_MS_MAX:
                text = f"the max delay time of message is too large, max is {DELAY_MS_MAX}"
                raise GrpcRefusal("ILLEGAL_DELIVERY_TIME", text)
            if due_ms < 0:
                raise GrpcRefusal("ILLEGAL_DELIVERY_TIME", "the delivery timestamp is before 1970")
        if own.message_type == messages.MESSAGE_TYPES["TRANSACTION"] and own.HasField(
            "orphaned_transaction_recovery_duration"
        ):
            seconds = own.orphaned_transaction_recovery_duration.seconds
            if not 0 <= seconds <= RECOVERY_S_MAX:
                text = f"the max transaction recovery time of message is too large, max is {RECOVERY_S_MAX}"
                raise GrpcRefusal("BAD_REQUEST", text)


def _check_text(what: str, text: str, code: str) -> None:
    if not text.strip():
        raise GrpcRefusal(code, f"{what} cannot be the char sequence of whitespace")
    if CONTROL.search(text):
        raise GrpcRefusal(code, f"{what} cannot contain control character")
