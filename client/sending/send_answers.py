"""What a broker answers to a send, however it came. Only reads."""

from dataclasses import dataclass
from typing import Protocol

from firearrow._native.wire.command import RemotingCommand


class Answer(Protocol):
    """What is read of an answer: `_native.wire.sends.SendAnswer` or CommandAnswer."""

    @property
    def code(self) -> int: ...
    @property
    def remark(self) -> str | None: ...
    @property
    def queue_id(self) -> int: ...
    @property
    def queue_offset(self) -> int: ...
    @property
    def offset_message_id(self) -> str | None: ...
    @property
    def transaction_id(self) -> str | None: ...
    @property
    def batch_unique_id(self) -> str | None: ...
    @property
    def recall_handle(self) -> str | None: ...
    @property
    def region(self) -> str: ...
    @property
    def trace_on(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class CommandAnswer:
    """The same, of an answer that came as a RemotingCommand. FieldError from `of`."""

    code: int
    remark: str | None
    queue_id: int
    queue_offset: int
    offset_message_id: str | None
    transaction_id: str | None
    batch_unique_id: str | None
    recall_handle: str | None
    region: str
    trace_on: bool

    @staticmethod
    def of(answer: RemotingCommand) -> "CommandAnswer":
        ext = answer.ext
        return CommandAnswer(
            answer.code, answer.remark, answer.integer_or("queueId", -1), answer.integer_or("queueOffset", -1),
            ext.get("msgId"), ext.get("transactionId"), ext.get("batchUniqId"), ext.get("recallHandle"),
            ext.get("MSG_REGION", "DefaultRegion"), ext.get("TRACE_ON") != "false",
        )  # fmt: skip
