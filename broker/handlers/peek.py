"""PEEK_MESSAGE (200052): the messages that a group would pop next, without taking them. Loop thread."""

import random

from firearrow._native.store.message_store import GetStatus, MessageStore
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base.errors import Refusal
from firearrow.broker.base.peer import Peer, Routes
from firearrow.broker.base.stats import Stats
from firearrow.broker.pop.permissions import PopPermissions, PopTarget, rotated

MESSAGES_MAX = 32
"""More in one answer are not given, however many are asked for."""
RETRY_FIRST_PERCENT = 20
WRONG_PLACE = (GetStatus.OFFSET_TOO_SMALL, GetStatus.OFFSET_OVERFLOW_BADLY)


class PeekHandler:
    def __init__(self, store: MessageStore, permissions: PopPermissions, stats: Stats) -> None:
        self._store = store
        self._permissions = permissions
        self._stats = stats

    def routes(self) -> Routes:
        return {RequestCode.PEEK_MESSAGE: self.peek}

    def peek(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        target = self._permissions.check_access(request, peer)
        most = request.integer("maxMsgNums", 32)
        if most < 0:
            raise Refusal(ResponseCode.INVALID_PARAMETER, f"maxMsgNums must be from 0, not {most}")
        bodies: list[bytes] = []
        count, rest = 0, 0
        for topic, queue_id in self._places(target):
            start = self._permissions.next_offset(target.group, topic, queue_id)
            rest += max(self._store.reader.max_offset(topic, queue_id) - start, 0)
            if count < min(most, MESSAGES_MAX):
                found, body = self._read(topic, queue_id, start, min(most, MESSAGES_MAX) - count)
                count += found
                bodies.append(body)
        body = b"".join(bodies)
        if count:
            self._stats.got(target.group, target.topic.name, count, len(body))
        ext = {"popTime": "0", "invisibleTime": "0", "reviveQid": "0", "restNum": str(rest)}
        if not count:
            return request.answer(ResponseCode.PULL_NOT_FOUND, "NO_MESSAGE_IN_QUEUE", ext)
        return request.answer(ResponseCode.SUCCESS, "FOUND", ext, body)

    def _places(self, target: PopTarget) -> list[tuple[str, int]]:
        """In the order in which they are read: the retry topic first now and then, else last."""
        drawn = random.randrange(100)
        own = [(target.topic.name, queue_id) for queue_id in target.queues(drawn)]
        retried = [
            (topic.name, queue_id)
            for topic in self._permissions.retry_topics(target)[:1]
            for queue_id in rotated(topic, drawn)
        ]
        return retried + own if drawn < RETRY_FIRST_PERCENT else own + retried

    def _read(self, topic: str, queue_id: int, start: int, capacity: int) -> tuple[int, bytes]:
        got = self._store.reader.get(topic, queue_id, start, capacity)
        if got.status in WRONG_PLACE:
            got = self._store.reader.get(topic, queue_id, got.next_offset, capacity)
        return got.count, got.body
