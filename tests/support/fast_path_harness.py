"""FastPathHarness: a Harness with the fast path, and connections to it without sockets."""

from pathlib import Path

from firearrow._native.fastpath.fast_connection import FastConnection
from firearrow._native.fastpath.fast_dispatch import FastDispatch, RequestCounters
from firearrow._native.fastpath.long_polling import Queue
from firearrow._native.fastpath.send_message import Sender
from firearrow._native.fastpath.topic_cache import PlainTopics
from firearrow._native.store.message_store import InnerMessage
from firearrow._native.wire.codes import ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow._native.wire.unique_ids import UniqueIds
from firearrow.broker.base.message_ids import host_bytes
from firearrow.broker.base.peer import Peer
from firearrow.broker.base.stats import Stats
from tests.support.frames import commands_in
from tests.support.harness import HOST, Harness
from tests.support.stores import open_store
from tests.support.transport import RecordingTransport


class FastPathConnection(FastConnection):
    """One connection. `slow` has what the fast path did not take; its response is queued, as a handler would do."""

    def __init__(self, harness: "FastPathHarness") -> None:
        super().__init__(harness.loop, high_water=1 << 20)
        self.harness = harness
        self.slow: list[RemotingCommand] = []
        self.output = RecordingTransport()
        self.fast_handler = harness.fast_handler
        self.host = host_bytes("127.0.0.9", 999)
        self.connection_made(self.output)  # type: ignore[arg-type]

    def received(self, command: RemotingCommand) -> None:
        self.slow.append(command)
        self.harness.reply_after(self, command)

    def lost(self, reason: Exception | None) -> None: ...
    def broken(self, fault: str) -> None: ...

    def reply(self, answer: RemotingCommand) -> None:
        self.send(answer.encode())

    def feed(self, *frames: bytes) -> None:
        data = b"".join(frames)
        buffer = self.get_buffer(-1)
        buffer[: len(data)] = data
        buffer.release()
        self.buffer_updated(len(data))

    def answers(self) -> list[tuple[int, int]]:
        """(opaque, code) of every command written, in order."""
        return [(answer.opaque, answer.code) for answer in self.commands()]

    def commands(self) -> list[RemotingCommand]:
        """Every command written, in order."""
        return commands_in(b"".join(self.output.writes))


class FastPathHarness(Harness):
    """A Harness with a Sender and a FastDispatch; topic T has two queues. `arrivals` has the queues that grew."""

    def __init__(self, folder: Path, *, sync_flush: bool = False) -> None:
        store = open_store(folder, segment_bytes=1 << 20, sync_flush=sync_flush)
        super().__init__(folder, store=store, sync_timeout_ms=1000)
        self.stats = Stats("c", self.clock.now_ms())
        self.arrivals: list[set[Queue]] = []
        self.listeners.append(self.arrivals.append)
        self.plain_topics = PlainTopics()
        self.plain_topics.put("T", queues=2, sendable=True)
        ids = UniqueIds(HOST[:-4], 1, b"salt")
        self.sender = Sender(
            self.plain_topics, self.store, self.write_batch, self.stats, self.clock, ids, HOST
        )
        self.stats.source(self.sender.count)
        self.sender.configure(b"CLUSTER\x01c\x02", {"MSG_REGION": "r"}, 0)
        self.counters = RequestCounters()
        self.fast_handler = FastDispatch(self.sender, None, self.counters)

    def reply_after(self, connection: FastPathConnection, command: RemotingCommand) -> None:
        placed = self.store.put(
            InnerMessage("T", 0, b"slow", b"", born_timestamp=0, born_host=HOST, store_host=HOST),
            now_ms=self.clock.now_ms(),
        )
        peer: Peer = connection  # type: ignore[assignment]
        self.write_batch.reply_after(placed.end, ("T", 0), peer, command.answer(ResponseCode.SUCCESS))
