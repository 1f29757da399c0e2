"""Receipt: the receipt handle that a client of gRPC gets: POP's, with where the message is. Pure functions.

    <start offset> <pop time> <invisible ms> <revive queue> <kind> <broker> <queue> <queue offset> <log offset>

`kind` is the kind of topic that the message waited in: 0 the topic itself, 1 and 2 the group's retry topic.
"""

from typing import NamedTuple

from firearrow._native.protocol import name_rules
from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.grpc.statuses import GrpcRefusal
from firearrow.broker.pop.receipt_handles import (
    InvalidReceiptHandle,
    ReceiptHandle,
    parse_number,
    real_topic,
)
from firearrow.broker.tables.json_fields import INT_MAX

WORDS_MIN = 8
INVISIBLE_MS_MAX = 43_200_000
"""What a client may ask for."""
NOT_KNOWN = -1


class Receipt(NamedTuple):
    """`topic`: the one in which the message waited. `log_offset`: NOT_KNOWN without one. `lite_topic`: whose queue and
    offset these are; empty: those of the topic."""

    handle: ReceiptHandle
    topic: str
    queue_id: int
    queue_offset: int
    log_offset: int
    lite_topic: str = ""

    @staticmethod
    def of(text: str, topic: str, group: str, lite_topic: str = "") -> "Receipt":
        """GrpcRefusal: it is not a handle."""
        try:
            handle = ReceiptHandle.of(text)
            words = text.split(" ")
            if len(words) < WORDS_MIN:
                raise InvalidReceiptHandle(f"{len(words)} words, at least {WORDS_MIN} are needed")
            queue_id, offset = (parse_number(word, "receipt handle") for word in words[6:8])
            if queue_id > INT_MAX:
                raise InvalidReceiptHandle(f"there is no queue {queue_id}")
            log_offset = parse_number(words[-1], "receipt handle") if len(words) > WORDS_MIN else NOT_KNOWN
            topic = real_topic(topic, group, handle.kind)
            return Receipt(handle, topic, queue_id, offset, log_offset, lite_topic)
        except InvalidReceiptHandle as error:
            raise GrpcRefusal("INVALID_RECEIPT_HANDLE", f"receipt handle is invalid: {error}") from None

    @property
    def visible_ms(self) -> int:
        """When the message becomes visible again."""
        return self.handle.pop_ms + self.handle.invisible_ms

    @property
    def text(self) -> str:
        return " ".join(map(str, (*self.handle, self.queue_id, self.queue_offset, self.log_offset)))

    @property
    def key(self) -> tuple[str, int, int]:
        """Of the message, whatever handle it has now."""
        queue = name_rules.lite_queue(self.topic, self.lite_topic) if self.lite_topic else self.topic
        return queue, self.queue_id, self.queue_offset

    def fields(self, group: str) -> dict[str, str]:
        """Of the requests of remoting that name a popped message."""
        return {
            "consumerGroup": group,
            "topic": self.topic,
            "queueId": str(self.queue_id),
            "offset": str(self.queue_offset),
            "extraInfo": self.text,
        } | self._lite_fields

    @property
    def _lite_fields(self) -> dict[str, str]:
        return {"liteTopic": self.lite_topic} if self.lite_topic else {}

    def change(self, group: str, invisible_ms: int) -> RemotingCommand:
        """The request that makes the message visible then, without counting that as a delivery. Of a lite topic it is
        counted: that request would be about all messages that were popped with this one."""
        fields = self.fields(group) | {"invisibleTime": str(invisible_ms)}
        if not self.lite_topic:
            fields["suspend"] = "true"
        return RemotingCommand.request(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, fields)

    def dead_letter(self, group: str, message_id: str = "") -> RemotingCommand:
        """The request that puts the message to the dead letters of its group, however often it may be retried."""
        fields = {
            "group": group,
            "offset": str(self.log_offset),
            "originMsgId": message_id,
            "originTopic": self.topic,
            "originQueueId": str(self.queue_id),
            "originQueueOffset": str(self.queue_offset),
            "delayLevel": "-1",
            "maxReconsumeTimes": "0",
            "unitMode": "false",
        } | self._lite_fields
        return RemotingCommand.request(RequestCode.CONSUMER_SEND_MSG_BACK, fields)

    def acknowledgement(self, group: str) -> RemotingCommand:
        return RemotingCommand.request(RequestCode.ACK_MESSAGE, self.fields(group))

    def changed(self, answer: RemotingCommand) -> "Receipt":
        """After CHANGE_MESSAGE_INVISIBLETIME with this answer."""
        handle = self.handle._replace(
            pop_ms=answer.integer_or("popTime", self.handle.pop_ms),
            invisible_ms=answer.integer_or("invisibleTime", self.handle.invisible_ms),
            revive_queue=answer.integer_or("reviveQid", self.handle.revive_queue),
        )
        return self._replace(handle=handle)
