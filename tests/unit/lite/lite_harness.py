"""LiteHarness: LiteServices around a store in this process, whose clock and loop move only when a test moves them."""

from pathlib import Path
from typing import Any

from firearrow._native.store.message_store import MessageStore, StoreConfig
from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.app.lite_services import LiteServices
from firearrow.broker.append.lmq import LmqDispatch
from firearrow.broker.base.errors import Refusal
from firearrow.broker.base.message import Message
from firearrow.broker.base.options import Options
from firearrow.broker.pop.long_polling import PopHoldService
from firearrow.broker.tables.groups import GroupConfig
from firearrow.broker.tables.lmq import LmqGroupTable, LmqTopicTable
from firearrow.broker.tables.topics import TopicConfig
from tests.support.harness import Harness
from tests.support.peers import RecordedPeer

T, G = "T", "G"
MINUTE_MS = 60_000


def store_config() -> StoreConfig:
    return StoreConfig(
        segment_bytes=1 << 20, queue_file_bytes=20_000, index_slots=100, index_entries=400, lmq=True
    )


class LiteHarness(Harness):
    """The topic T, whose lite topics stay for 20 minutes, and its group G."""

    def __init__(self, folder: Path, **options: Any) -> None:  # noqa: ANN401
        super().__init__(folder, store=MessageStore.open(folder, store_config()))
        dispatch = LmqDispatch(self.store, lambda: 1000).dispatch
        self.appender._multi = dispatch
        topics, groups = LmqTopicTable(self.clock), LmqGroupTable(self.clock)
        attributes = {"+message.type": "LITE", "+lite.topic.expiration": "20"}
        topics.update_all([TopicConfig(T, 2, 2, attributes=attributes)])
        groups.update(GroupConfig(G, attributes={"+lite.bind.topic": T}))
        self.options = Options(store_root=str(folder), lmq=True, multi=True, **options)
        self.lite_context = self.context(self.options, topics=topics, groups=groups)
        self.holds = PopHoldService(self.loop, self.clock, lambda: 100, lambda: 100)
        self.lite = LiteServices(self.lite_context, self.appender, self.holds)
        self.routes = {code: handler for table in self.lite.routes() for code, handler in table.items()}
        self.service = self.lite._service

    def send(self, lite_topic: str, body: bytes = b"x", queue_id: int = 0) -> None:
        properties = {"INNER_MULTI_DISPATCH": f"%LMQ%${T}${lite_topic}", "__LITE_TOPIC": lite_topic}
        self.appender.put(Message(T, queue_id, body, properties, born_ms=self.clock.now_ms()))
        self.write_batch.commit()

    def ask(self, code: RequestCode, ext: dict[str, str], body: bytes = b"") -> RemotingCommand | None:
        """The answer of a handler; None: the request is held. A refusal is an answer."""
        peer = RecordedPeer()
        request = RemotingCommand.request(code, ext, body=body)
        try:
            answer = self.routes[code](request, peer)
        except Refusal as refusal:
            return request.answer(refusal.code, refusal.remark)
        if isinstance(answer, RemotingCommand):
            return answer
        return peer.replies[-1] if peer.replies else None

    def lite_topics(self) -> set[str]:
        """Those that exist."""
        return {topic.rpartition("$")[2] for topic, _ in self.store.reader.last_ends(f"%LMQ%${T}$")}

    def look(self) -> None:
        """Expire, with all slices."""
        self.lite._expiry.look()
        self.timers.run(1000)
