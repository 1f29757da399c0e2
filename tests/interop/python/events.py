"""Events as JSON: one object a line on standard output, written at once."""

import json
import sys
from typing import Any

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.base.errors import ClientError
from firearrow.client.base.message import MessageQueue

Event = dict[str, Any]


def emit(name: str, **members: object) -> None:
    sys.stdout.write(json.dumps({"event": name, **members}) + "\n")
    sys.stdout.flush()


def failure(name: str, error: BaseException, **members: object) -> None:
    """Errors of the client by the names of Java's: `code` is the same there."""
    known = isinstance(error, ClientError)
    emit(
        name,
        type="MQClientException" if known else type(error).__name__,
        code=error.code if known else -1,
        message=str(error),
        **members,
    )


def of_queue(queue: MessageQueue) -> Event:
    return {"topic": queue.topic, "broker": queue.broker_name, "queueId": queue.queue_id}


def of_message(message: ReceivedMessage) -> Event:
    return {
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "msgId": message.message_id,
        "commitLogOffset": message.physical_offset,
        "storeSize": message.store_size,
        "tags": message.tags,
        "keys": " ".join(message.keys) or None,
        "flag": message.flag,
        "reconsumeTimes": message.reconsume_times,
        "bornTimestamp": message.born_timestamp,
        "storeTimestamp": message.store_timestamp,
        "properties": dict(message.properties),
        "body": message.body.hex(),
    }
