"""Locks of orderly consumers on their queues: LOCK_BATCH_MQ (41), UNLOCK_BATCH_MQ (42). Loop thread."""

from typing import NamedTuple

from firearrow._native.protocol.fastjson import dumps, loads_body, message_queue
from firearrow._native.protocol.message_queue import MessageQueue
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base.errors import Refusal
from firearrow.broker.base.peer import Peer, Routes
from firearrow.broker.tables import json_fields
from firearrow.broker.tables.locks import LocksFull, RebalanceLocks

BYTES_MAX = 4 << 20
QUEUES_MAX = 10_000
"""Queues of one request."""


class LockRequest(NamedTuple):
    group: str
    client: str
    queues: list[MessageQueue]


class LocksHandler:
    def __init__(self, locks: RebalanceLocks) -> None:
        self._locks = locks

    def routes(self) -> Routes:
        return {RequestCode.LOCK_BATCH_MQ: self.lock, RequestCode.UNLOCK_BATCH_MQ: self.unlock}

    def lock(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        lock_request = _read(request.body)
        try:
            owned = self._locks.lock(lock_request.group, lock_request.client, lock_request.queues)
        except LocksFull as error:
            raise Refusal(ResponseCode.SYSTEM_ERROR, str(error)) from None
        return request.answer(body=dumps({"lockOKMQSet": owned}))

    def unlock(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        lock_request = _read(request.body)
        self._locks.unlock(lock_request.group, lock_request.client, lock_request.queues)
        return request.answer()


def _read(body: bytes) -> LockRequest:
    try:
        fields = json_fields.members(loads_body(body, BYTES_MAX), "body")
        raw = json_fields.items(fields.get("mqSet"), "mqSet")
        if len(raw) > QUEUES_MAX:
            raise ValueError(f"mqSet of {len(raw)} queues, at most {QUEUES_MAX}")
        group, client = json_fields.text(fields, "consumerGroup"), json_fields.text(fields, "clientId")
        return LockRequest(group, client, [_queue(value) for value in raw])
    except ValueError as error:
        raise Refusal(ResponseCode.SYSTEM_ERROR, f"lock request: {error}") from None


def _queue(value: object) -> MessageQueue:
    queue = message_queue(value)
    if queue is None:
        raise ValueError("mqSet has a member that is not a message queue")
    return queue
