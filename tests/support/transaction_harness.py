"""TransactionHarness: a Harness with a TransactionService."""

from pathlib import Path

from firearrow._native.store.log.record import Record, decode
from firearrow._native.store.message_store import MessageStore
from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.append.followed_log import FollowedLog
from firearrow.broker.append.progress_journal import Kind
from firearrow.broker.base.event_counts import GIVEN_UP
from firearrow.broker.base.message import Message
from firearrow.broker.base.message_ids import offset_id
from firearrow.broker.base.options import Options
from firearrow.broker.handlers.end_transaction import TransactionsHandler
from firearrow.broker.tables.clients import ClientTable
from firearrow.broker.tables.members import Member
from firearrow.broker.tables.offsets import ConsumerOffsets
from firearrow.broker.tables.topics import TopicSettings, TopicTable
from firearrow.broker.transactions.service import TransactionService
from tests.support.harness import HOST, Harness
from tests.support.peers import RecordedPeer

HALF, OP, DISCARD = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"
GROUP = "CID_RMQ_SYS_TRANS"
COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0
ROUND_MS, TIMEOUT_MS = 30_000, 6000


class TransactionHarness(Harness):
    def __init__(
        self,
        folder: Path,
        offsets: bytes | None = None,
        now_ms: int = 1_700_000_000_000,
        store: MessageStore | None = None,
        *,
        was_slave: bool = False,
        **options: int | bool,
    ) -> None:
        super().__init__(folder, now_ms=now_ms, store=store)
        self.offsets = ConsumerOffsets(
            self.clock, on_commit=lambda *entry: self.journal.note(Kind.OFFSET, *entry)
        )
        if offsets is not None:
            self.offsets.load(offsets)
        self.topics = TopicTable(self.clock, TopicSettings(cluster="c", broker="b"))
        self.clients = ClientTable(self.clock)
        context = self.context(
            Options(broker_name="b", **options),
            topics=self.topics,
            offsets=self.offsets,
            clients=self.clients,
        )
        self.stats = context.stats
        self.service = TransactionService(context, self.appender)
        restorers = {Kind.OFFSET: self.offsets.restore, Kind.DECIDED: self.service.restore}
        for entry in self.journal.recover_entries():
            restorers[Kind(entry.kind)](entry.name, entry.number, entry.value)
        followed = FollowedLog(self.store)
        if was_slave:
            followed.follow()
        followed.end_following()
        self.service.start(followed)
        self.routes = TransactionsHandler(self.service).routes()
        self.peer = RecordedPeer()

    def join(self, group: str = "PG") -> RecordedPeer:
        peer = RecordedPeer()
        member = Member(f"c{id(peer)}", peer, 0, 400, self.clock.monotonic_ms())
        self.clients.note_producer(group, member)
        return peer

    def prepare(
        self, body: bytes = b"x", topic: str = "T", *, ahead_ms: int = 0, **properties: str
    ) -> Record:
        """`ahead_ms`: of its producer's clock."""
        message = Message(
            topic,
            1,
            body,
            {"TRAN_MSG": "true", "PGROUP": "PG", "UNIQ_KEY": "U"} | properties,
            born_ms=self.clock.now_ms() + ahead_ms,
        )
        self.service.prepare(message)
        self.appender.put(message)
        self.timers.run()
        return self.records(HALF)[-1]

    def end(self, half: Record, what: int, checked: bool = False, **fields: object) -> RemotingCommand | None:
        """End a transaction as a producer does; returns the response, if there is one."""
        self.decide(half, what, checked, **fields)
        self.timers.run()
        return self.peer.replies.pop() if self.peer.replies else None

    def decide(self, half: Record, what: int, checked: bool = False, **fields: object) -> None:
        ext = {
            "producerGroup": "PG",
            "tranStateTableOffset": half.queue_offset,
            "msgId": "U",
            "commitLogOffset": half.physical_offset,
            "commitOrRollback": what,
            "fromTransactionCheck": str(checked).lower(),
        } | fields
        request = RemotingCommand(RequestCode.END_TRANSACTION, {key: str(ext[key]) for key in ext})
        answer = self.routes[request.code](request, self.peer)
        if answer is not None:
            assert isinstance(answer, RemotingCommand)
            self.peer.reply(answer)

    def next_round(self, asked: RecordedPeer | None = None) -> list[RemotingCommand]:
        """Run the next round of checks; returns the requests that it sent to `asked`."""
        if asked is not None:
            asked.requests.clear()
        self.timers.run(ROUND_MS)
        self.timers.run()
        return [] if asked is None else list(asked.requests)

    def marks(self) -> list[bytes]:
        return self.bodies(OP)

    def given_up(self) -> dict[tuple[str, ...], int]:
        """(topic, reason) → transactions."""
        return dict(self.stats.events.counted(GIVEN_UP))

    def offset(self, topic: str) -> int:
        return self.offsets.committed(GROUP, topic, 0)


def asked_for(harness: TransactionHarness, request: RemotingCommand) -> Record:
    """The half message that a check request names; asserts what the request contains."""
    raw = harness.store.reader.record_at(int(request.ext["commitLogOffset"]))
    assert raw is not None
    half = decode(raw)
    assert request.code == RequestCode.CHECK_TRANSACTION_STATE
    assert request.is_oneway
    assert half.topic == HALF
    assert half.queue_offset == int(request.ext["tranStateTableOffset"])
    assert request.ext["offsetMsgId"] == offset_id(HOST, half.physical_offset)
    shown = decode(request.body)
    assert (shown.topic, shown.queue_id) == ("T", 1)
    assert (shown.queue_offset, shown.physical_offset) == (half.queue_offset, half.physical_offset)
    return half
