"""Replays a recorded conversation of a client with Apache's proxy against our broker, event by event.

What a client sent is sent again in the recorded order. Each answer of the proxy is waited for and compared with ours,
field by field, and so is the end of each call. A call to ReceiveMessage is made when the recorded one was answered: so
what was sent before can be received, and a wait that found nothing is a short one. Which receive gets which message is
open: each delivery of a message is compared with the same delivery of it.
"""

import functools
import threading
import time
import uuid
from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import grpc

from firearrow.broker.base.peer import Address
from firearrow.broker.grpc import messages
from tests.grpc import brokers, recordings
from tests.grpc.comparison import ABSENT, Answer, Difference, Path, compared
from tests.grpc.recordings import Event
from tests.grpc.translation import ORPHAN, Translation
from tests.support.client_socket import ClientSocket

WITHIN_S = 60.0
CALL_S = 90.0
POLL_S = 5
"""How long a receive waits here: the least that may be asked for."""
FOR_EVER_S = 1 << 20
NO_METHOD = "NoSuchThing"
NOTHING = "MESSAGE_NOT_FOUND"
Status = tuple[str, str]
Delivered = tuple[str, str]
"""Topic and id of a message: dead letters keep their ids."""


class RunningCall:
    """One of our calls: what it has received, and how it ended. The thread of the replay reads it."""

    def __init__(self, channel: grpc.Channel, rpc: str, meta: dict[str, str], deadline: float) -> None:
        self._sent: deque[bytes | None] = deque()
        self.received: list[Answer] = []
        self._ended: Status | None = None
        self._changed = threading.Condition()
        self._response = None if rpc == NO_METHOD else messages.method_classes(rpc)[1]
        metadata = [item for item in meta.items() if item[0].startswith(("x-mq", "authorization"))]
        kind = channel.stream_stream if rpc == "Telemetry" else channel.unary_stream
        stub = kind(f"/{messages.SERVICE}/{rpc}")
        self._begin = functools.partial(stub, metadata=metadata, timeout=deadline)
        self.call: Any = None
        if rpc == "Telemetry":
            self._read(self._begin(self._requests()))

    def _requests(self) -> Iterator[bytes]:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._sent or self._ended is not None)
                if self._ended is not None:
                    return
                item = self._sent.popleft()
            if item is None:
                return
            yield item

    def _read(self, call: Any) -> None:  # noqa: ANN401
        self.call = call
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        ended = ("OK", "")
        try:
            for data in self.call:
                assert self._response is not None
                answer = recordings.to_dict(self._response.FromString(data))
                with self._changed:
                    self.received.append(answer)
                    self._changed.notify_all()
        except grpc.RpcError as error:
            ended = error.code().name, error.details() or ""
        with self._changed:
            self._ended = ended
            self._changed.notify_all()

    def send(self, data: bytes) -> None:
        """All that a client sends, but for Telemetry."""
        if self.call is None:
            self._read(self._begin(data))
        else:
            self._put(data)

    def half_close(self) -> None:
        """Of Telemetry: the client sends no more."""
        self._put(None)

    def _put(self, item: bytes | None) -> None:
        with self._changed:
            self._sent.append(item)
            self._changed.notify_all()

    def answer(self, number: int, *, is_orphan: bool = False) -> Answer | None:
        """Of its answers, or of its questions about orphaned transactions, the one with this number. None: the call
        ended without it, or it did not come in time."""

        def those() -> list[Answer]:
            return [each for each in self.received if (ORPHAN in each) == is_orphan]

        with self._changed:
            self._changed.wait_for(lambda: len(those()) > number or self._ended is not None, WITHIN_S)
            found = those()
            return found[number] if len(found) > number else None

    def end(self, answers: int | None = None) -> tuple[list[Answer], Status | None]:
        """All its answers, and its status; None: it has not ended in time, or had more than so many `answers`."""

        def is_there() -> bool:
            return self._ended is not None or (answers is not None and len(self.received) > answers)

        with self._changed:
            self._changed.wait_for(is_there, WITHIN_S)
            return list(self.received), self._ended

    @property
    def has_ended(self) -> bool:
        return self._ended is not None


class Deliveries:
    """Of each message: each time that it was received here, and how often it was in the recording so far."""

    def __init__(self) -> None:
        self.found: dict[Delivered, list[Answer]] = defaultdict(list)
        self.recorded: dict[Delivered, int] = defaultdict(int)


@dataclass
class Receive:
    """A call to ReceiveMessage that has not ended. `number`: of the recorded call; `finds_nothing`: that one did
    not."""

    number: int
    call: RunningCall
    finds_nothing: bool
    is_refused: bool = False


class Replay:
    """`compared`: how many messages and ends of Apache's were compared; `pairs`: method, request, Apache's answer and
    ours of each."""

    def __init__(self, address: Address, name: str) -> None:
        options = [("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
        self._channel = grpc.insecure_channel("{}:{}".format(*address), options)
        self.name = name
        self._events = list(recordings.events(name))
        self._calls: dict[int, RunningCall] = {}
        self._heads: dict[int, Event] = {}
        self._requests: dict[int, Answer] = {}
        self._answered: dict[tuple[int, bool], int] = defaultdict(int)
        """By call, and whether they are questions about orphaned transactions."""
        self._deliveries = Deliveries()
        self._receives: list[Receive] = []
        self._refused: set[str] = set()
        """Ids of messages that were refused here, and not by Apache."""
        self._received: set[int] = set()
        """Calls to ReceiveMessage that were replayed."""
        self._stream: tuple[list[Answer], Status | None] = ([], None)
        """Our last receive that got messages: its other answers, and its end."""
        self.translation = Translation()
        self.compared = 0
        self.equal = 0
        self.differences: list[Difference] = []
        self.pairs: list[tuple[str, Answer, Answer, Answer]] = []

    def send_by_remoting(self, connection: ClientSocket) -> None:
        """What a producer of remoting sent in the recording."""
        for message in brokers.sent_by_remoting(self.name):
            own = message["system_properties"]
            born_s = brokers.milliseconds(own["born_timestamp"]) // 1000
            shift = self.translation.shift_of(own["message_id"], born_s)
            brokers.send_by_remoting(connection, message, shift)

    def run(self) -> None:
        try:
            for event in self._events:
                self._step(event)
            self._finish_receives(None)
            self._compare_counts()
        finally:
            for call in self._calls.values():
                call.call.cancel()
            self._channel.close()

    def _step(self, event: Event) -> None:
        if event.meta is not None:
            self._heads[event.call] = event
        elif event.rpc == "ReceiveMessage":
            if event.is_request and event.message is not None:
                self._requests[event.call] = event.message
            elif event.is_answer and event.call not in self._received:
                self._received.add(event.call)
                self._receive(event.call)
        elif event.is_request:
            self._ask(event)
        elif event.message is not None:
            self._answer(event, event.message)
        elif event.status is not None:
            self._end(event, event.status)

    # ---- calls but for ReceiveMessage ----

    def _ask(self, event: Event) -> None:
        if event.rpc == "NotifyClientTermination" or event.half_closes:
            self._finish_receives(self._client_of(event.call))
        call = self._calls.get(event.call)
        if call is None:
            call = self._calls[event.call] = self._made(event.call, event.rpc, CALL_S)
        if event.message is not None:
            self._requests[event.call] = event.message
            call.send(self._data(event))
        elif event.half_closes:
            call.half_close()
        elif event.cancelled:
            call.call.cancel()

    def _data(self, event: Event) -> bytes:
        assert event.message is not None
        if "hex" in event.message:
            return bytes.fromhex(event.message["hex"])
        request = self.translation.request(event, messages.method_classes(event.rpc)[0])
        return bytes(request.SerializeToString())

    def _made(self, number: int, rpc: str, deadline: float) -> RunningCall:
        meta = self._heads[number].meta
        assert meta is not None
        return RunningCall(self._channel, rpc, meta, FOR_EVER_S if rpc == "Telemetry" else deadline)

    def _client_of(self, number: int) -> str:
        meta = self._heads[number].meta
        assert meta is not None
        return meta.get("x-mq-client-id", "")

    def _answer(self, event: Event, theirs: Answer) -> None:
        key = event.call, ORPHAN in theirs
        ours = self._calls[event.call].answer(self._answered[key], is_orphan=key[1])
        self._answered[key] += 1
        self._compare(event.call, event.rpc, theirs, ours)

    def _end(self, event: Event, theirs: Status) -> None:
        number = self._answered[event.call, False]
        most = number if event.rpc == "Telemetry" and theirs[0] != "OK" else None
        answers, ours = self._calls[event.call].end(most)
        left = [each for each in answers if ORPHAN not in each][number:]
        self._compare_end(event.call, event.rpc, theirs, ours, left)

    # ---- ReceiveMessage ----

    def _receive(self, number: int) -> None:
        theirs, end = self._recorded_stream(number)
        delivered = [each for each in theirs if "message" in each]
        if not delivered and theirs[0]["status"]["code"] == NOTHING:
            receive = self._started(number, finds_nothing=True)
            self._receives.append(receive)
            if self._was_alone(number):
                receive.call.end()
            return
        if not delivered:
            answers, ours = self._started(number, poll_s=None).call.end()
            self._compare_stream(number, theirs, end, answers, ours)
            return
        found = [self._delivery(number, each) for each in delivered]
        others = [each for each in theirs if "message" not in each]
        self._compare_stream(number, others, end, *self._stream)
        for there, here in zip(delivered, found, strict=True):
            self._compare(number, "ReceiveMessage", there, here)

    def _was_alone(self, number: int) -> bool:
        """Nothing else was asked while this call waited."""
        of_call = [n for n, each in enumerate(self._events) if each.call == number]
        return not any(
            each.is_request and each.call != number for each in self._events[of_call[1] : of_call[-1]]
        )

    def _recorded_stream(self, number: int) -> tuple[list[Answer], Status]:
        of_call = [each for each in self._events if each.call == number and each.is_answer]
        end = next(each.status for each in of_call if each.status is not None)
        return [each.message for each in of_call if each.message is not None], end

    def _started(self, number: int, *, finds_nothing: bool = False, poll_s: int | None = POLL_S) -> Receive:
        """`poll_s`: how long it waits; None: as recorded."""
        request = recordings.parsed(self._requests[number], messages.method_classes("ReceiveMessage")[0])
        deadline = self._heads[number].deadline or CALL_S
        if poll_s is not None:
            request.long_polling_timeout.seconds = poll_s
            deadline = CALL_S
        if request.HasField("attempt_id"):
            request.attempt_id = str(uuid.uuid4())
        call = self._made(number, "ReceiveMessage", deadline)
        call.send(request.SerializeToString())
        return Receive(number, call, finds_nothing)

    def _delivery(self, number: int, theirs: Answer) -> Answer | None:
        """Ours, as often as it was delivered before; by this receive or by another one that waits. None: none comes."""
        key = key_of(theirs)
        count = self._deliveries.recorded[key]
        self._deliveries.recorded[key] += 1
        until = time.monotonic() + WITHIN_S
        own: Receive | None = None
        while time.monotonic() < until and key[1] not in self._refused:
            self._collect()
            if len(self._deliveries.found[key]) > count:
                return self._deliveries.found[key][count]
            if own is not None and own.is_refused:
                return None
            if own is None or own.call.has_ended:
                own = self._started(number)
                self._receives.append(own)
            time.sleep(0.002)
        return None

    def _collect(self) -> None:
        """What receives that have ended have got. One that should have found nothing, and has, is made again."""
        for receive in [each for each in self._receives if each.call.has_ended]:
            self._receives.remove(receive)
            answers, end = receive.call.end()
            if any("message" in each for each in answers):
                self._add(receive, answers, end)
                if receive.finds_nothing:
                    self._receives.append(self._started(receive.number, finds_nothing=True))
            elif receive.finds_nothing:
                theirs, ended = self._recorded_stream(receive.number)
                self._compare_stream(receive.number, theirs, ended, answers, end)
            else:
                receive.is_refused = not answers or answers[0]["status"]["code"] != NOTHING
                if receive.is_refused:
                    self._stream = answers, end

    def _add(self, receive: Receive, answers: list[Answer], end: Status | None) -> None:
        kinds = [next(iter(each)) for each in answers]
        form = ["status", *("message" for _ in answers[2:]), "delivery_timestamp"]
        if kinds != form:
            self._note(receive.number, "ReceiveMessage", ("stream",), form, kinds)
        self._stream = [each for each in answers if "message" not in each], end
        for each in answers:
            if "message" in each:
                self._deliveries.found[key_of(each)].append(each)

    def _finish_receives(self, client_id: str | None) -> None:
        """Before a client ends, its receives find what they have to find, mostly nothing. None: of all clients."""
        until = time.monotonic() + WITHIN_S
        while any(client_id in (None, self._client_of(each.number)) for each in self._receives):
            self._collect()
            if time.monotonic() > until:
                raise TimeoutError(f"{self.name}: a receive has not ended")
            time.sleep(0.002)

    # ---- comparing ----

    def _compare(self, number: int, rpc: str, theirs: Answer, ours: Answer | None) -> None:
        self.compared += 1
        if ours is None:
            is_refused = "message" in theirs and key_of(theirs)[1] in self._refused
            return self._note(number, rpc, ("refused" if is_refused else "silence",), theirs, ABSENT, theirs)
        if rpc == "SendMessage" and theirs["status"]["code"] != ours["status"]["code"]:
            sent = self._requests[number]["messages"]
            self._refused |= {each["system_properties"].get("message_id", "") for each in sent}
        expected = self.translation.answer(theirs)
        self.pairs.append((rpc, self._requests.get(number, {}), expected, ours))
        found = list(compared(expected, ours))
        self.equal += not found
        for path, there, here in found:
            self._note(number, rpc, path, there, here, theirs, ours)
        return self.translation.learn(theirs, ours)

    def _compare_stream(
        self, number: int, theirs: list[Answer], end: Status, ours: list[Answer], ended: Status | None
    ) -> None:
        for n, each in enumerate(theirs):
            self._compare(number, "ReceiveMessage", each, ours[n] if len(ours) > n else None)
        self._compare_end(number, "ReceiveMessage", end, ended, ours[len(theirs) :])

    def _compare_end(
        self, number: int, rpc: str, theirs: Status, ours: Status | None, left: list[Answer]
    ) -> None:
        self.compared += 1
        self.equal += theirs == ours and not left
        if theirs != ours:
            self._note(number, rpc, ("end",), theirs, ours)
        for each in left:
            self._note(number, rpc, ("surplus",), ABSENT, each)

    def _compare_counts(self) -> None:
        """No message was delivered, and no transaction asked about, more often than in the recording."""
        for key, found in self._deliveries.found.items():
            recorded = self._deliveries.recorded[key]
            if len(found) > recorded:
                self._note(0, "ReceiveMessage", ("deliveries",), recorded, len(found), {}, found[-1])
        for number, call in self._calls.items():
            asked = [each for each in call.received if ORPHAN in each]
            recorded = self._answered[number, True]
            if len(asked) > recorded:
                self._note(number, "Telemetry", ("questions",), recorded, len(asked), {}, asked[-1])

    def _note(
        self,
        number: int,
        rpc: str,
        path: Path,
        theirs: Any,  # noqa: ANN401
        ours: Any,  # noqa: ANN401
        their_answer: Answer | None = None,
        our_answer: Answer | None = None,
    ) -> None:
        answers = their_answer or {}, our_answer or {}
        request = self._requests.get(number, {})
        self.differences.append(Difference(self.name, rpc, request, *answers, path, theirs, ours))


def key_of(answer: Answer) -> Delivered:
    message = answer["message"]
    return message["topic"]["name"], message["system_properties"]["message_id"]
