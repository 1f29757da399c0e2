"""A slave as workload: what a master's log, its journal and its tables leave at each moment of being copied.

`followed_log` runs the slave's parts in the recorded process, in steps; `slave_broker` runs a whole slave, whose master
is a process of its own. The truth is read from the slave's own log (`derived`), and compared with the master's at the
end: each state is therefore a prefix of the master's log.
"""

import random
import struct
import tempfile
import threading
import time
from pathlib import Path

from firearrow._native.replication.follower import Follower
from firearrow._native.store.log.journal_entries import Entry
from firearrow._native.store.message_store import MessageStore, StoreConfig
from firearrow._native.wire.codes import RequestCode
from firearrow.broker.append.progress_journal import Journal, Kind
from firearrow.broker.replication.wires.firearrow.journal_stream import JournalFollower
from tests.crash.marks import Marks
from tests.crash.progress import GROUP, ProgressWriter
from tests.crash.recorded_broker import SMALL, serve
from tests.crash.whole import make_group
from tests.crash.writer import Options, Writer
from tests.replication.pairs import end_of, name_server, start_master
from tests.replication.sender import Sender
from tests.support.client_socket import ClientSocket
from tests.support.eventually import eventually
from tests.support.requests import send_ext, topic_ext

PIECE = struct.Struct(">qi")
QUEUES = [("T", 0), ("T", 1), ("U", 0)]
STORE: Options = {
    "segment_bytes": 8192,
    "queue_file_bytes": 1200,
    "index_slots": 40,
    "index_entries": 64,
    "max_message_bytes": 4096,
}
STEPS, SENDS = 70, 60


def followed_log(root: Path, mark: Marks, draw: random.Random) -> None:
    """Either flush mode: pieces cut anywhere, journal entries ahead of their records, kills and new connections."""
    with tempfile.TemporaryDirectory() as folder:
        master = Writer(Path(folder) / "master", Unmarked(), draw, STORE)
        slave = _Slave(root, mark, draw, Path(folder) / "journal")
        for number in range(STEPS):
            master.put_and_write(QUEUES, draw.randint(1, 5))
            slave.journalled(master.store)
            slave.receive(master.store)
            if number % 23 == 22:
                slave.killed()
        slave.receive(master.store, whole=True)
        slave.close()
        assert slave.store.written == master.store.written
        for path in sorted((root / "commitlog").iterdir()):
            if int(path.name) < master.store.written:
                assert path.read_bytes() == (Path(folder) / "master" / "commitlog" / path.name).read_bytes()
        master.store.abandon()


class Unmarked(Marks):
    """Of a store that is not recorded."""

    def __call__(self, what: str, **values: object) -> None: ...


class _Slave:
    def __init__(self, root: Path, mark: Marks, draw: random.Random, sent_journal: Path) -> None:
        self.root, self.mark, self.draw = root, mark, draw
        self.options = {**STORE, "sync_flush": draw.random() < 0.6}
        self.sent = Journal(sent_journal, "master's run", 0)
        self.sent.start_draining()
        self.steps = 0
        mark("options", **self.options)
        mark("derived")
        mark("writing", end=1 << 62)
        self.open()

    def open(self) -> None:
        self.store = MessageStore.open(self.root, StoreConfig(**self.options))
        self.progress = ProgressWriter(self.root, self.mark, self.store)
        self.follower = Follower(self.store)
        self.journal = JournalFollower(self.progress.journal, self.store.written, self.take_effect)
        self.connect()

    def connect(self) -> None:
        self.follower.begin(0, 1)
        self.journal.begin(self.store.written)

    def take_effect(self, entry: Entry) -> None:
        if entry.kind == Kind.OFFSET:
            self.progress.offsets.restore(entry.name, entry.number, entry.value)

    def journalled(self, master: MessageStore) -> None:
        """Entries arrive before the records that they speak of; offsets of consumers speak of none."""
        topic, queue_id = self.draw.choice(QUEUES)
        offset = max(master.next_offset(topic, queue_id), 0)
        self.steps += 1
        self.mark("step", value=self.steps, end=master.written)
        self.mark("committing", topic=topic, queue=queue_id, offset=offset)
        self.sent.note(Kind.DELAY, "", 1, self.steps, master.written)
        self.sent.note(Kind.OFFSET, f"{topic}@{GROUP}", queue_id, offset)
        for piece in self.sent.drain():
            self.journal.received(piece)
        self.mark("noted", topic=topic, queue=queue_id, offset=offset)
        if self.options["sync_flush"]:
            self.progress.journal.sync()
            self.mark("committed", topic=topic, queue=queue_id, offset=offset)

    def receive(self, master: MessageStore, *, whole: bool = False) -> None:
        """The log in pieces that end where a file ends, or earlier; sometimes the connection ends within one."""
        while self.follower.next_offset < master.written:
            at = self.follower.next_offset
            data = bytes(master.log_bytes(at, self.draw.randint(1, 3000)) or b"")
            sent = PIECE.pack(at, len(data)) + data
            if not whole and self.draw.random() < 0.1:
                sent = sent[: self.draw.randrange(len(sent))]
                self.take(sent)
                self.connect()
                return
            self.take(sent)

    def take(self, sent: bytes) -> None:
        self.follower.wire[: len(sent)] = sent
        self.follower.received(len(sent))
        while self.follower.append():
            self.write()
        self.write()

    def write(self) -> None:
        if self.store.staged_bytes:
            if self.options["sync_flush"]:
                self.progress.journal.sync()  # as the write batch does before it writes
            self.mark("written", end=self.store.write())
            self.journal.log_written(self.store.written)
        if self.options["sync_flush"] or self.draw.random() < 0.1:
            end = self.store.sync()
            self.store.confirm(end)
            self.mark("synced", end=end)
        if self.draw.random() < 0.1:
            self.store.prepare()
            self.store.flush_queues()
            self.progress.save_progress()
            self.journal.rotated()

    def killed(self) -> None:
        self.progress.journal.close()
        self.store.abandon()
        self.open()

    def close(self) -> None:
        self.progress.save_progress()  # the journal does not count after a clean stop
        self.progress.journal.close()
        self.sent.close()
        self.store.close()


def slave_broker(root: Path, mark: Marks, draw: random.Random) -> None:
    """A whole slave, SYNC_FLUSH: what it acknowledged to its master is on its disk."""
    with tempfile.TemporaryDirectory() as folder:
        settings = {key: value for key, value in SMALL.items() if key.startswith(("map", "max"))}
        master = start_master(Path(folder) / "master", **settings)
        with master.connect() as connection:
            end = [0]
            segment = int(SMALL["mappedFileSizeCommitLog"])
            sender = Sender(Path(folder) / "master" / "commitlog", lambda: end[0], segment)
            sender.piece = draw.choice((500, 3000, 32_768))
            role = {
                "brokerName": "pair",
                "brokerRole": "SLAVE",
                "brokerId": "1",
                "namesrvAddr": name_server(master),
                "haMasterAddress": sender.address,
            }
            try:
                serve(root, mark, role, lambda slave: _follow(slave, connection, mark, draw, sender, end))
            finally:
                sender.close()
                master.kill()


def _follow(
    slave: ClientSocket,
    master: ClientSocket,
    mark: Marks,
    draw: random.Random,
    sender: Sender,
    end: list[int],
) -> None:
    over = threading.Event()
    marker = threading.Thread(target=_mark_acknowledged, args=(sender, mark, over))
    marker.start()
    try:
        for topic in ("T", "U"):
            assert master.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(topic, 2)).code == 0
        make_group(master)
        for number in range(SENDS):
            body, properties = draw.randbytes(draw.randint(0, 2500)), f"KEYS\x01k{number}\x02TAGS\x01a\x02"
            ext = send_ext(draw.choice("TU"), draw.randrange(2), i=properties)
            assert master.ask(RequestCode.SEND_MESSAGE_V2, ext, body).code == 0
            end[0] = end_of(master)
            if draw.random() < 0.2:
                fields = {"consumerGroup": GROUP, "topic": "T", "queueId": "0", "commitOffset": str(number)}
                assert master.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields).code == 0
            time.sleep(draw.choice((0, 0, 0.02, 0.1)))
            if draw.random() < 0.05:
                sender.cut()
        eventually(lambda: end_of(slave) == end_of(master), what="the master's end")
    finally:
        over.set()
        marker.join()


def _mark_acknowledged(sender: Sender, mark: Marks, over: threading.Event) -> None:
    read = 0
    while not over.wait(0.002):
        while read < len(sender.acks):
            mark("synced", end=sender.acks[read])
            read += 1
