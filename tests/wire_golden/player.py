"""Replays the recorded clients to a real broker, event by event; yields its responses beside Apache's.

Each recorded connection is a separate socket. A request is answered before the next one is sent, so requests take
effect in the recorded order; only pulls and relays that waited in the recording wait here.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from firearrow._native.wire.command import RemotingCommand
from tests.support.broker_process import BrokerProcess
from tests.support.client_socket import ClientSocket
from tests.wire_golden.conversation import Connection as Where
from tests.wire_golden.conversation import Event
from tests.wire_golden.translation import Translation

Address = tuple[str, int]
CHECK_TRANSACTION_STATE = 39
POP_MESSAGE, POLLING_TIMEOUT = 200050, 210
PULLS = (11, 361)
RELAYED = (307, 309, 324, 325)
HELD_MS = 300
"""A pull that Apache answered this late was held."""

DEADLINE_MS = 4000
"""A pull that Apache answered later than this, without an arrival, had reached its deadline."""

SUBSCRIPTION_NOT_LATEST = 24
"""Apache held these pulls until its client changed the subscription; we hold them until their deadline."""

NOT_FOUND_MS, OTHERWISE_MS = 100, 1000
"""We do not wait as long: a pull that found nothing ends at once, any other later."""

SETTINGS = (100, 102)
"""Writes to a name server's KV configuration; brokers that register get these values."""

NO_SUCH_CODE = 29_999
"""Its refusal shows that everything before it on the connection was handled."""

PATIENCE_S, ANSWER_S = 3.0, 10.0
DELIVERY_S = 8.0
GET_MAX_OFFSET = 30


@dataclass(eq=False)
class Exchange:
    """What Apache sent, and what we sent instead (None: nothing). `request` is None if Apache sent one to a client."""

    theirs: Event
    ours: RemotingCommand | None
    request: Event | None


class ReplayConnection:
    """One connection: responses by opaque, requests of the broker in order."""

    def __init__(self, connection: ClientSocket) -> None:
        self.connection = connection
        self.answers: dict[int, RemotingCommand] = {}
        self.closed = False

    def answer(self, opaque: int) -> RemotingCommand | None:
        self._read_until(lambda: opaque in self.answers, ANSWER_S)
        return self.answers.pop(opaque, None)

    def asked(self, code: int) -> RemotingCommand | None:
        requests = self.connection.requests
        self._read_until(lambda: any(one.code == code for one in requests), PATIENCE_S)
        for n, one in enumerate(requests):
            if one.code == code:
                return requests.pop(n)
        return None

    def barrier(self) -> None:
        """Everything sent before was handled; a pull that has no response now is held."""
        probe = RemotingCommand(NO_SUCH_CODE, opaque=-1)
        self.connection.send_raw(probe.encode())
        assert self.answer(-1) is not None

    def _read_until(self, found: Callable[[], bool], within_s: float) -> None:
        deadline = time.monotonic() + within_s
        while not self.closed and not found() and time.monotonic() < deadline:
            self.connection.socket.settimeout(max(deadline - time.monotonic(), 0.001))
            try:
                command = self.connection.receive()
            except TimeoutError:
                return
            except ConnectionError:
                self.closed = True
                return
            if command.is_response:
                self.answers[command.opaque] = command
            else:
                self.connection.requests.append(command)


class Player:
    """`lone` is a name server without a broker: the recorded broker registers with it; KV writes go there, too."""

    def __init__(
        self, events: list[Event], broker: BrokerProcess, lone: Address, translation: Translation
    ) -> None:
        self.events = events
        self.broker = broker
        self.lone = lone
        self.translation = translation
        self.lines: dict[Where, ReplayConnection] = {}
        self.early: dict[Event, RemotingCommand | None] = {}
        self.relayed: dict[tuple[Where, int], int] = {}
        self.surplus: list[tuple[Event, RemotingCommand]] = []

    def play(self) -> Iterator[Exchange]:
        for event in self.events:
            exchange = self._play(event)
            if exchange is not None:
                yield exchange
            if event.last and event.where in self.lines:
                self._end(event, self.lines.pop(event.where))

    def _end(self, event: Event, line: ReplayConnection) -> None:
        """Nothing may be left that Apache did not send."""
        line.barrier()
        left = [*line.connection.requests, *line.answers.values()]
        self.surplus += [(event, one) for one in left]
        line.connection.close()

    def _play(self, event: Event) -> Exchange | None:
        line = self._line(event)
        if event.to_server:
            if event.is_answer:
                self._answer_relay(event, line)
            else:
                self._ask(event, line)
            return None
        if not event.is_answer:
            ours = line.asked(event.command.code)
            if ours is not None:
                self.relayed[event.where, event.command.opaque] = ours.opaque
                if ours.code == CHECK_TRANSACTION_STATE:
                    self.translation.learn_half(event.command, ours)
            return Exchange(event, ours, None)
        if event in self.early:
            return Exchange(event, self.early.pop(event), event.partner)
        ours = line.answer(event.command.opaque)
        if event.partner is not None:
            self.translation.learn(event.partner, event, ours)
        return Exchange(event, ours, event.partner)

    def _ask(self, event: Event, line: ReplayConnection) -> None:
        answer = event.partner
        request = self.translation.request(event)
        if answer is not None and self._reached_deadline(event, answer):
            request.ext["suspendTimeoutMillis"] = str(
                NOT_FOUND_MS if answer.command.code == 19 else OTHERWISE_MS
            )
        if answer is not None and (request.code, answer.command.code) == (POP_MESSAGE, POLLING_TIMEOUT):
            request.ext["pollTime"] = str(OTHERWISE_MS)
        if request.code in SETTINGS and event.line["peer"] == "namesrv":
            with ClientSocket(self.lone) as lone:
                lone.answer_to(self._sent(lone, request))
        if answer is None or answer.command.code == 0:
            self._await_messages(request, None if answer is None else answer.command)
        line.connection.send_raw(request.encode())
        self.translation.sent(event)
        if request.is_oneway:
            line.barrier()
        elif answer is not None and not self._waits(event, answer):
            if request.code in PULLS:
                line.barrier()
                self.early[answer] = line.answers.pop(request.opaque, None)
            else:
                self.early[answer] = ours = line.answer(request.opaque)
                self.translation.learn(event, answer, ours)

    def _await_messages(self, request: RemotingCommand, answer: RemotingCommand | None) -> None:
        """What a delay or a timer delivered in the recording is delivered here at its own time: a pull waits for
        all that Apache's found, a send or a commit for all that preceded it."""
        position = self.translation.standing(request, answer)
        if position is None:
            return
        (topic, queue_id), wanted = position
        deadline = time.monotonic() + DELIVERY_S
        with self.broker.connect() as other:
            while time.monotonic() < deadline:
                found = other.ask(GET_MAX_OFFSET, {"topic": topic, "queueId": str(queue_id)})
                if int(found.ext["offset"]) >= wanted:
                    return
                time.sleep(0.02)

    def _waits(self, event: Event, answer: Event) -> bool:
        if event.command.code in (*PULLS, POP_MESSAGE):
            return bool(answer.line["ts"] - event.line["ts"] > HELD_MS)
        return event.command.code in RELAYED

    def _reached_deadline(self, event: Event, answer: Event) -> bool:
        held_ms = answer.line["ts"] - event.line["ts"]
        code = answer.command.code
        over_ms = HELD_MS if code == SUBSCRIPTION_NOT_LATEST else DEADLINE_MS
        return event.command.code in PULLS and code != 0 and held_ms > over_ms

    @staticmethod
    def _sent(lone: ClientSocket, request: RemotingCommand) -> int:
        lone.send_raw(request.encode())
        return request.opaque

    def _answer_relay(self, event: Event, line: ReplayConnection) -> None:
        opaque = self.relayed.pop((event.where, event.command.opaque), None)
        if opaque is not None:
            answer = event.command
            answer.opaque = opaque
            line.connection.send_raw(answer.encode())

    def _line(self, event: Event) -> ReplayConnection:
        if event.where not in self.lines:
            address = self.lone if event.where[0] == "start" else self._address(event)
            self.lines[event.where] = ReplayConnection(ClientSocket(address))
        return self.lines[event.where]

    def _address(self, event: Event) -> tuple[str, int]:
        if event.line["peer"] == "broker":
            return self.broker.address
        assert self.broker.name_server is not None
        return self.broker.name_server
