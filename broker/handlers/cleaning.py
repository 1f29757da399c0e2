"""Files that nobody needs: queues of topics that are gone (316), expired queues (306), expired log (329)."""

from collections.abc import Callable

from firearrow._native.store.message_store import MessageStore
from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base.peer import Peer, Routes
from firearrow.broker.tables.name_rules import LMQ_PREFIX
from firearrow.broker.tables.topics import TopicTable


class CleaningHandler:
    """`delete_expired()` and `clean_queues()` ask for a round of retention, which goes on behind the answer."""

    def __init__(
        self,
        store: MessageStore,
        topics: TopicTable,
        *,
        delete_expired: Callable[[], None],
        clean_queues: Callable[[], None],
    ) -> None:
        self._store = store
        self._topics = topics
        self._delete_expired = delete_expired
        self._clean_queues = clean_queues

    def routes(self) -> Routes:
        return {
            RequestCode.CLEAN_UNUSED_TOPIC: self.clean_unused_topics,
            RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: self.clean_queues,
            RequestCode.DELETE_EXPIRED_COMMITLOG: self.delete_segments,
        }

    def clean_unused_topics(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        for topic in {topic for topic, _ in self._store.reader.queues()}:
            kept = topic in self._topics or self._topics.is_system(topic) or topic.startswith(LMQ_PREFIX)
            if not kept:
                self._store.drop_topic(topic)
        return request.answer()

    def clean_queues(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        self._clean_queues()
        return request.answer()

    def delete_segments(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        self._delete_expired()
        return request.answer()
