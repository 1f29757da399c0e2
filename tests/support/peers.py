"""RecordedPeer: a peer without a socket, which records what it is sent."""

import itertools
from collections.abc import Callable

from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base.peer import Address, Peer

NUMBERS = itertools.count(1)


class RecordedPeer:
    """A `Peer` whose responses and requests can be inspected; `asked` answers our requests to it."""

    def __init__(
        self,
        remote: Address = ("127.0.0.1", 40001),
        local: Address = ("127.0.0.1", 10911),
        asked: Callable[[RemotingCommand], RemotingCommand] | None = None,
    ) -> None:
        self.remote = remote
        self.local = local
        self.number = next(NUMBERS)
        self.closed = False
        self.write_paused = False
        self.throttled: list[float] = []
        self.replies: list[RemotingCommand] = []
        self.requests: list[RemotingCommand] = []
        self._asked = asked
        self._on_close: list[Callable[[Peer], None]] = []

    def reply(self, answer: RemotingCommand) -> None:
        self.replies.append(answer)

    def oneway(self, command: RemotingCommand) -> None:
        self.requests.append(command)

    async def ask(self, command: RemotingCommand, timeout_s: float) -> RemotingCommand:
        self.requests.append(command)
        if self._asked is None:
            raise TimeoutError
        return self._asked(command)

    def throttle(self, delay_s: float) -> None:
        self.throttled.append(delay_s)

    def on_close(self, callback: Callable[[Peer], None]) -> None:
        self._on_close.append(callback)

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            for callback in self._on_close:
                callback(self)
