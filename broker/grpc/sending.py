"""SendMessage, EndTransaction and RecallMessage. Loop thread.

Each message is checked, then sent as a request of remoting: SEND_MESSAGE_V2, with the topic's name as the producer
group.
"""

from firearrow._native.fastpath.send_message import Sender
from firearrow._native.grpc.plain_sends import QueueTurns, SendRules
from firearrow._native.protocol import name_rules
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.append.appender import TRANSACTION_BITS, TRANSACTION_COMMIT
from firearrow.broker.base.message import properties_text
from firearrow.broker.base.message_ids import offset_of
from firearrow.broker.base.options import Options
from firearrow.broker.grpc import messages
from firearrow.broker.grpc.call import Call
from firearrow.broker.grpc.commands import HalfMessage
from firearrow.broker.grpc.context import GrpcContext
from firearrow.broker.grpc.message_checks import MessageChecks
from firearrow.broker.grpc.message_codec import (
    NOT_SETTABLE,
    check_digest,
    flags_from,
    properties_from,
    type_of,
)
from firearrow.broker.grpc.messages import ProtoMessage, milliseconds
from firearrow.broker.grpc.routes import QueueChoice
from firearrow.broker.grpc.statuses import GrpcRefusal, code_of, expect, known_topic, topic_name
from firearrow.broker.tables.topics import TopicConfig

STORED = frozenset(
    (
        ResponseCode.SUCCESS,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
    )
)
RESOLUTIONS = {1: TRANSACTION_COMMIT, 2: TRANSACTION_BITS}
"""TransactionResolution COMMIT and ROLLBACK → commitOrRollback; any other decides nothing."""
SERVER_CHECK = 2
MESSAGES_MAX = 256
"""Of one request."""


class SendingMethods:
    def __init__(self, context: GrpcContext) -> None:
        self._context = context
        self._topics = context.tables.topics
        self._checks = MessageChecks(context.config, context.clock)
        self._turns = QueueTurns()
        self._queues = QueueChoice(context, self._turns)

    # ---- plain sends ----

    def rules(self, sender: Sender) -> SendRules:
        """Of sends that need none of this (see plain_sends.pxd)."""
        times = self._context.clients.times
        rules = SendRules(sender, self._turns, times, NOT_SETTABLE, self._plain_queues, _failed)
        self._topics.listen(lambda topics: rules.forget_topics())

        def options_changed(options: Options) -> None:
            rules.forget_topics()
            rules.date(options.grpc_signature_age_s > 0)

        self._context.config.listen(options_changed)
        return rules

    def _plain_queues(self, name: str) -> int:
        """How many queues the topic has for messages of type NORMAL; 0: it takes none."""
        try:
            topic = known_topic(self._topics, topic_name(name))
            check_type(topic, "NORMAL")
            return self._queues.writable_queues(topic)
        except GrpcRefusal:
            return 0

    # ---- SendMessage ----

    def send(self, call: Call, request: ProtoMessage) -> None:
        if not request.messages:
            raise GrpcRefusal("MESSAGE_CORRUPTED", "no message to send")
        name = request.messages[0].topic.name
        topic_name(name)
        if len(request.messages) > MESSAGES_MAX:
            text = f"{len(request.messages)} messages in one request, at most {MESSAGES_MAX} are allowed"
            raise GrpcRefusal("BAD_REQUEST", text)
        call.check(RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, {"b": name}))
        call.let_through()
        if any(message.topic.name != name for message in request.messages):
            raise GrpcRefusal("MESSAGE_CORRUPTED", "topic in message is not same")
        for message in request.messages:
            self._checks.check(message)
            check_digest(message)
        topic = known_topic(self._topics, name)
        sent = [self._request(call, topic, message) for message in request.messages]
        queue_id = self._queues.choose(topic, request.messages)
        response = call.method.response()
        entries = [response.entries.add() for _ in sent]
        left = len(sent)

        for entry, message, command in zip(entries, request.messages, sent, strict=True):

            def stored(
                answer: RemotingCommand, entry: ProtoMessage = entry, of: ProtoMessage = message
            ) -> None:
                nonlocal left
                _set_entry(entry, of, answer)
                left -= 1
                if left == 0:
                    response.status.CopyFrom(messages.common_status(entries))
                    call.finish(response)

            command.ext["e"] = str(queue_id)
            call.ask(command, stored)

    def _request(self, call: Call, topic: TopicConfig, message: ProtoMessage) -> RemotingCommand:
        """GrpcRefusal: the message is not of its topic's type."""
        born_ms = milliseconds(message.system_properties.born_timestamp) or self._context.clock.now_ms()
        properties = properties_from(message, topic.name, call.peer.remote[0], born_ms)
        check_type(topic, type_of(properties))
        ext = {
            "a": topic.name,
            "b": topic.name,
            "c": "TBW102",
            "d": "4",
            "f": str(flags_from(message)),
            "g": str(born_ms),
            "h": "0",
            "i": properties_text(properties).decode(),
            "j": "0",
            "k": "false",
            "l": "0",
            "m": "false",
        }
        return RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, ext, message.body)

    # ---- EndTransaction ----

    def end_transaction(self, call: Call, request: ProtoMessage) -> None:
        name = topic_name(request.topic.name)
        if not request.transaction_id.strip():
            raise GrpcRefusal("INVALID_TRANSACTION_ID", "transaction id cannot be empty")
        half = HalfMessage.of(request.transaction_id)
        ext = {
            "topic": name,
            "producerGroup": name,
            "tranStateTableOffset": str(half.queue_offset),
            "commitLogOffset": str(half.physical_offset),
            "commitOrRollback": str(RESOLUTIONS.get(request.resolution, 0)),
            "fromTransactionCheck": "true" if request.source == SERVER_CHECK else "false",
            "msgId": request.message_id,
            "halfMessageId": half.message_id,
        }

        def ended(answer: RemotingCommand) -> None:
            expect(answer)
            call.finish(call.method.response(status=messages.status("OK")))

        call.ask(RemotingCommand.request(RequestCode.END_TRANSACTION, ext), ended)

    # ---- RecallMessage ----

    def recall(self, call: Call, request: ProtoMessage) -> None:
        name = topic_name(request.topic.name)
        ext = {"producerGroup": name, "topic": name, "recallHandle": request.recall_handle}
        call.check(RemotingCommand.request(RequestCode.RECALL_MESSAGE, dict(ext)))
        check_type(known_topic(self._topics, name), "DELAY")

        def recalled(answer: RemotingCommand) -> None:
            expect(answer)
            response = call.method.response(status=messages.status("OK"))
            response.message_id = answer.text_or("msgId", "")
            call.finish(response)

        call.ask(RemotingCommand.request(RequestCode.RECALL_MESSAGE, ext), recalled)


def check_type(topic: TopicConfig, actual: str) -> None:
    """GrpcRefusal: the topic takes messages of another type."""
    if topic.name.startswith((name_rules.RETRY_PREFIX, name_rules.DLQ_PREFIX)):
        return
    expected = topic.attributes.get("message.type", "NORMAL")
    if expected not in (actual, "MIXED"):
        text = (
            f"TopicMessageType validate failed, the expected type is {expected}, but actual type is {actual}"
        )
        raise GrpcRefusal("MESSAGE_PROPERTY_CONFLICT_WITH_TYPE", text)


def _set_entry(entry: ProtoMessage, message: ProtoMessage, answer: RemotingCommand) -> None:
    code = code_of(answer)
    text = "OK" if answer.code == ResponseCode.SUCCESS else answer.remark or code
    entry.status.CopyFrom(messages.status(code, text))
    own = message.system_properties
    if answer.code not in STORED:
        return
    entry.message_id = entry.transaction_id = own.message_id
    entry.offset = answer.integer_or("queueOffset", 0)
    entry.recall_handle = answer.text_or("recallHandle", "")
    if own.message_type == messages.MESSAGE_TYPES["TRANSACTION"]:
        half = HalfMessage(own.message_id, entry.offset, offset_of(answer.text("msgId")))
        entry.transaction_id = half.transaction_id


def _failed(reply: bytes, code: int, remark: str | None) -> bytes:
    """The answer to a plain send whose reply was this one, if its message had been stored and confirmed in time."""
    sent = messages.SendMessageResponse.FromString(reply).entries[0]
    message = messages.Message(system_properties={"message_id": sent.message_id})
    request = RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, {})
    response = messages.SendMessageResponse()
    entry = response.entries.add()
    _set_entry(entry, message, request.answer(code, remark, {"queueOffset": str(sent.offset)}))
    response.status.CopyFrom(messages.common_status(response.entries))
    return response.SerializeToString()  # type: ignore[no-any-return]
