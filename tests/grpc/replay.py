"""Replays a recorded conversation of a client with Apache's proxy against our broker, message by message.

What a client sent is sent again in the recorded order, with today's times and with the handles and ids that our broker
has given; what the proxy answered is waited for and compared. The messages of all receives are collected: which receive
gets which message is open, but each delivery of a message must come, and look like the recorded one.
"""

import queue
import threading
import time
from collections import defaultdict
from typing import Any

import grpc

from firearrow.broker.base.peer import Address
from firearrow.broker.grpc import messages
from tests.grpc import recordings
from tests.grpc.recordings import Event
from tests.support.client_socket import ClientSocket
from tests.support.grpc_caller import create_group, create_topic

WITHIN_S = 40.0
SKIPPED = frozenset(("PullMessage", "UpdateOffset", "GetOffset", "QueryOffset", "SyncLiteSubscription"))
REFUSED = "TOPIC_NOT_FOUND"


class Mismatch(AssertionError):
    """What differs, and where."""


def prepare(connection: ClientSocket, name: str) -> None:
    """Create the topics and groups of the recording as it shows them."""
    asked: dict[int, str] = {}
    for event in recordings.events(name):
        message = event.message
        if message is None:
            continue
        if event.rpc == "QueryRoute" and event.is_request:
            asked[event.call] = message["topic"]["name"]
        elif event.rpc == "QueryRoute" and message["status"]["code"] == "OK":
            queues = message["message_queues"]
            create_topic(connection, asked[event.call], queues[0]["accept_message_types"][0], len(queues))
        elif (
            event.rpc == "Telemetry"
            and not event.is_request
            and "subscription" in message.get("settings", {})
        ):
            subscription = message["settings"]["subscription"]
            create_group(
                connection,
                subscription["group"]["name"],
                consumeMessageOrderly=subscription.get("fifo", False),
                retryMaxTimes=message["settings"]["backoff_policy"]["max_attempts"] - 1,
            )


class RunningCall:
    """One call: what it sends, and what it has received so far."""

    def __init__(self, channel: grpc.Channel, event: Event, received: "Deliveries") -> None:
        self._event = event
        self._first: Any = None
        self.rpc = event.rpc
        self.request, response = messages.method_classes(event.rpc)
        self._sent: queue.Queue[Any] = queue.Queue()
        self._answers: queue.Queue[Any] = queue.Queue()
        self._commands: queue.Queue[Any] = queue.Queue()
        metadata = [
            item for item in (event.meta or {}).items() if item[0].startswith(("x-mq", "authorization"))
        ]
        stub = channel.stream_stream(
            f"/{messages.SERVICE}/{event.rpc}",
            request_serializer=self.request.SerializeToString,
            response_deserializer=response.FromString,
        )
        timeout = None if event.rpc == "Telemetry" else 25 if event.rpc == "ReceiveMessage" else WITHIN_S
        self.call = stub(iter(self._sent.get, None), metadata=metadata, timeout=timeout)
        threading.Thread(target=self._read, args=(received,), daemon=True).start()

    def _read(self, received: "Deliveries") -> None:
        try:
            for answer in self.call:
                found = recordings.to_dict(answer)
                if self.rpc == "ReceiveMessage":
                    received.add(found)
                elif "recover_orphaned_transaction_command" in found:
                    self._commands.put(found)
                else:
                    self._answers.put(found)
        except grpc.RpcError:
            pass

    def send(self, message: Any) -> None:  # noqa: ANN401
        self._first = message
        self._sent.put(message)

    def again(self, channel: grpc.Channel, received: "Deliveries") -> None:
        """Make the same call once more, if it has ended."""
        if self.call.done():
            other = RunningCall(channel, self._event, received)
            other.send(self._first)
            other.end()
            self.call = other.call

    def end(self) -> None:
        self._sent.put(None)

    def answer(self, expected: dict[str, Any]) -> dict[str, Any]:
        is_command = "recover_orphaned_transaction_command" in expected
        found = (self._commands if is_command else self._answers).get(timeout=WITHIN_S)
        assert isinstance(found, dict)
        return found


class Deliveries:
    """Of each message, by its id: each time that it was received."""

    def __init__(self) -> None:
        self._found: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self._changed = threading.Condition()

    def add(self, answer: dict[str, Any]) -> None:
        if "message" in answer:
            with self._changed:
                self._found[answer["message"]["system_properties"]["message_id"]].append(answer["message"])
                self._changed.notify_all()

    def wait_for(self, message_id: str, number: int, within_s: float = WITHIN_S) -> dict[str, Any] | None:
        """None: it has not come."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._found[message_id]) > number, within_s)
            found = self._found[message_id]
            return found[number] if len(found) > number else None


class Replay:
    def __init__(self, address: Address) -> None:
        options = [("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
        self._channel = grpc.insecure_channel("{}:{}".format(*address), options)
        self._calls: dict[int, RunningCall] = {}
        self._received = Deliveries()
        self._recorded: dict[str, list[str]] = defaultdict(list)
        self._transactions: dict[str, str] = {}
        self._recalls: dict[str, str] = {}
        self.compared = 0

    def run(self, name: str) -> None:
        """Mismatch; queue.Empty: an answer is missing."""
        try:
            for event in recordings.events(name):
                if event.rpc not in SKIPPED:
                    self._step(event)
        finally:
            for call in self._calls.values():
                call.end()
                call.call.cancel()
            self._channel.close()

    def _step(self, event: Event) -> None:
        if event.meta is not None:
            self._calls[event.call] = RunningCall(self._channel, event, self._received)
        call = self._calls.get(event.call)
        if call is None:
            return
        if event.is_request and event.message is not None:
            call.send(self._renewed(event, call.request))
            if call.rpc != "Telemetry":
                call.end()
        elif event.is_request and (event.ends or event.cancelled):
            call.end()
        elif event.message is not None and event.rpc == "ReceiveMessage":
            self._delivered(event, event.message)
        elif event.message is not None:
            self._answered(event, call)

    def _delivered(self, event: Event, expected: dict[str, Any]) -> None:
        """Wait for a delivery. A receive of ours may have ended with fewer messages: then the same is asked again."""
        if "message" not in expected:
            return
        message = expected["message"]
        own = message["system_properties"]
        handles = self._recorded[own["message_id"]]
        handles.append(own["receipt_handle"])
        deadline = time.monotonic() + WITHIN_S
        while (actual := self._received.wait_for(own["message_id"], len(handles) - 1, 1)) is None:
            if time.monotonic() > deadline:
                raise Mismatch(f"{own['message_id']} was not delivered {len(handles)} times")
            self._calls[event.call].again(self._channel, self._received)
        self._compare("ReceiveMessage", message, actual)

    def _answered(self, event: Event, call: RunningCall) -> None:
        assert event.message is not None
        actual = call.answer(event.message)
        for there, here in zip(event.message.get("entries", ()), actual.get("entries", ()), strict=False):
            if "transaction_id" in there:
                self._transactions[there["transaction_id"]] = here["transaction_id"]
            if "recall_handle" in there:
                self._recalls[there["recall_handle"]] = here["recall_handle"]
        key = "recover_orphaned_transaction_command"
        if key in actual:
            self._transactions[event.message[key]["transaction_id"]] = actual[key]["transaction_id"]
        self._compare(event.rpc, event.message, actual)

    def _compare(self, rpc: str, expected: dict[str, Any], actual: dict[str, Any]) -> None:
        wanted, found = (without_transactions(recordings.comparable(each)) for each in (expected, actual))
        self.compared += 1
        if wanted != found and not is_named(rpc, wanted, found):
            raise Mismatch(f"{rpc}: expected {wanted}, not {found}")

    def _renewed(self, event: Event, kind: Any) -> Any:  # noqa: ANN401
        """With today's times, and our broker's handles and ids."""
        assert event.message is not None
        request = recordings.parsed(event.message, kind)
        if event.rpc == "SendMessage":
            for message in request.messages:
                own = message.system_properties
                ahead = own.delivery_timestamp.seconds - own.born_timestamp.seconds
                own.born_timestamp.seconds = int(time.time())
                if own.HasField("delivery_timestamp"):
                    own.delivery_timestamp.seconds = own.born_timestamp.seconds + ahead
                own.ClearField("body_digest")  # the body may be cut
        elif event.rpc == "EndTransaction":
            request.transaction_id = self._transactions.get(request.transaction_id, request.transaction_id)
        elif event.rpc == "RecallMessage":
            request.recall_handle = self._recalls.get(request.recall_handle, request.recall_handle)
        elif event.rpc == "AckMessage":
            for entry in request.entries:
                entry.receipt_handle = self._handle(entry.message_id, entry.receipt_handle)
        elif event.rpc in ("ChangeInvisibleDuration", "ForwardMessageToDeadLetterQueue"):
            request.receipt_handle = self._handle(request.message_id, request.receipt_handle)
        return request

    def _handle(self, message_id: str, recorded: str) -> str:
        handles = self._recorded.get(message_id, [])
        number = handles.index(recorded) if recorded in handles else len(handles) - 1
        if number < 0:
            return recorded
        found = self._received.wait_for(message_id, number)
        return recorded if found is None else str(found["system_properties"]["receipt_handle"])


def without_transactions(value: Any) -> Any:  # noqa: ANN401
    """A transaction's id states where its half message is as well; how often a producer was asked depends on time."""
    if isinstance(value, dict):
        left_out = ("transaction_id", "TRANSACTION_CHECK_TIMES")
        found = {key: without_transactions(each) for key, each in value.items() if key not in left_out}
        return {key: each for key, each in found.items() if each != {}}
    return [without_transactions(each) for each in value] if isinstance(value, list) else value


def is_named(rpc: str, expected: dict[str, Any], actual: dict[str, Any]) -> bool:
    """A named difference: the text of an unknown topic is ours; settings count as soon as they have come."""
    codes = [each.get("status", {}).get("code") for each in (expected, actual)]
    return codes == [REFUSED, REFUSED] or (
        rpc == "NotifyClientTermination" and codes == ["UNRECOGNIZED_CLIENT_TYPE", "OK"]
    )
