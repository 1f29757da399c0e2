"""Records and queue entries by offset or key. Loop thread.

VIEW_MESSAGE_BY_ID (33), QUERY_MESSAGE (12), QUERY_CONSUME_QUEUE (321).
"""

from firearrow._native.protocol import fastjson
from firearrow._native.store.message_store import MessageStore
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.auth.broker_facts import topic_of
from firearrow.broker.base.config import Config
from firearrow.broker.base.errors import Refusal
from firearrow.broker.base.peer import Peer, Routes
from firearrow.broker.quotas.quota_check import QuotaCheck
from firearrow.broker.tables.clients import ClientTable

ENTRIES_MAX = 10_000
"""Queue entries in one answer."""
UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"
BODY_BYTES_MAX = 8 << 20
"""Keeps an answer well below the limit of a frame; the newest messages are left out first."""


class QueryHandler:
    def __init__(self, store: MessageStore, clients: ClientTable, config: Config, quotas: QuotaCheck) -> None:
        self._store = store
        self._clients = clients
        self._config = config
        self._quotas = quotas

    def routes(self) -> Routes:
        return {
            RequestCode.VIEW_MESSAGE_BY_ID: self.view_message,
            RequestCode.QUERY_MESSAGE: self.query_message,
            RequestCode.QUERY_CONSUME_QUEUE: self.query_consume_queue,
        }

    def view_message(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        offset = request.integer("offset")
        record = self._store.reader.record_at(offset)
        if record is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}")
        self._quotas.view(request, topic_of(record) or "", len(record))
        return request.answer(body=record)

    def query_message(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        options = self._config.options
        count = min(request.integer("maxNum", 32), options.query_count)
        if request.boolean_or(UNIQUE_KEY_QUERY, False):
            count = options.unique_query_count
        topic = request.text("topic")
        records, last_ms, last_offset = self._store.reader.query(
            topic,
            request.text("key"),
            max(count, 0),
            request.integer("beginTimestamp"),
            request.integer("endTimestamp"),
            tag=request.text_or("indexType", "") == "T",
        )
        if not records:
            remark = "can not find message, maybe time range not correct"
            ext = {"indexLastUpdatePhyoffset": "0", "indexLastUpdateTimestamp": "0"}
            return request.answer(ResponseCode.QUERY_NOT_FOUND, remark, ext)
        ext = {"indexLastUpdatePhyoffset": str(last_offset), "indexLastUpdateTimestamp": str(last_ms)}
        records = _within(records, BODY_BYTES_MAX)
        body = b"".join(records)
        self._quotas.read(request, "", topic, len(records), len(body))
        return request.answer(ext=ext, body=body)

    def query_consume_queue(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        """Raw entries of a queue, with the subscription of the group in the request, if any."""
        topic, queue_id = request.text("topic"), request.integer("queueId", 32)
        index, count = request.integer("index"), request.integer("count", 32)
        low, high = (
            self._store.reader.min_offset(topic, queue_id),
            self._store.reader.max_offset(topic, queue_id),
        )
        if high == 0:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"{queue_id}@{topic} is not exist!")
        if not low <= index < high:
            return request.answer(
                remark=f"Index {index} of queue {queue_id}@{topic} is not in [{low}, {high})"
            )
        entries = self._store.reader.entries(topic, queue_id, index, min(max(count, 0), ENTRIES_MAX))
        if self._store.has_batch_queues(topic):
            entries = list(dict.fromkeys(entries))  # one for each batch
        body: dict[str, object] = {
            "maxQueueIndex": high,
            "minQueueIndex": low,
            "queueData": [
                {
                    "eval": False,
                    "physicOffset": e.physical_offset,
                    "physicSize": e.size,
                    "tagsCode": e.tags_code,
                }
                for e in entries
            ],
        }
        group = request.text_or("consumerGroup", "")
        subscription = self._clients.subscription(group, topic) if group else None
        if subscription is not None:
            body |= {"filterData": "null", "subscriptionData": subscription.to_object()}
        return request.answer(remark="not set any response code", body=fastjson.dumps(body))


def _within(records: list[bytes], bytes_max: int) -> list[bytes]:
    """The first records that fit into `bytes_max`; at least one."""
    total = 0
    fit: list[bytes] = []
    for record in records:
        total += len(record)
        if fit and total > bytes_max:
            break
        fit.append(record)
    return fit
