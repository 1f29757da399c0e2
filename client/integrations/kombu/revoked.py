"""Revoked tasks that wait for their ETA at a broker: which ones a remote control command names, and their recall.

A task waits as a timer message. Brokers find it by its key, the task's id; its properties are those of its recall
handle. The recalled task is sent again as one that has expired: the worker that gets it stores the state REVOKED and
reports it, as if the task had waited in the worker.
"""

import json
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

from firearrow._native.protocol.name_rules import TIMER_TOPIC
from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.admin_api.admin import Admin
from firearrow.client.base.errors import RocketMQError
from firearrow.client.base.message import Message
from firearrow.client.base.names import Namespace
from firearrow.client.integrations.kombu.envelope import RawMessage, Unreadable, expired
from firearrow.client.send.recall import RecallHandle

log = logging.getLogger("firearrow.client")

PIDBOX = ".pidbox"
TASKS_MAX = 1000
"""Tasks of one command that are recalled."""
TOO_LATE_MS = 1000
"""A task that is due sooner is left to the workers, which know that it is revoked."""
REAL_TOPIC, OUT_MS, UNIQUE_KEY = "REAL_TOPIC", "TIMER_OUT_MS", "UNIQ_KEY"


def revoked_tasks(exchange: str | None, raw: RawMessage) -> list[str]:
    """The ids of the tasks that a command of Celery's remote control revokes at all workers; mostly none."""
    if not exchange or not exchange.endswith(PIDBOX) or raw.get("content-type") != "application/json":
        return []
    body = raw["body"]
    if not isinstance(body, str) or '"revoke"' not in body:
        return []
    try:
        command = json.loads(body)
        if command["method"] != "revoke" or command.get("destination") or command.get("pattern"):
            return []
        ids = command["arguments"]["task_id"]
    except (ValueError, TypeError, LookupError):
        return []
    found = ids if isinstance(ids, list) else [ids]
    return [task for task in found if isinstance(task, str) and task][:TASKS_MAX]


async def recall(
    task: str,
    admin: Admin,
    namespace: Namespace,
    recall_by: Callable[[str, str], Awaitable[Any]],
    send: Callable[[Message], Awaitable[Any]],
) -> bool:
    """Recall the timers of a task and have a worker report that it was revoked. False: none was recalled.

    `recall_by(topic, handle)`.
    """
    recalled = False
    for message in await _waiting(admin, task):
        topic = namespace.unwrap(message.get_property(REAL_TOPIC) or "")
        try:
            again = expired(message, topic)
            await recall_by(topic, _handle(message))
            await send(again)
        except (RocketMQError, Unreadable) as error:
            log.info("task %s waits at the broker until its ETA, workers revoke it then: %s", task, error)
        else:
            recalled = True
    return recalled


async def _waiting(admin: Admin, task: str) -> list[ReceivedMessage]:
    try:
        found = await admin.messages_by_key(TIMER_TOPIC, task)
    except RocketMQError as error:
        log.info("task %s: its timer cannot be looked up: %s", task, error)
        return []
    soonest = time.time() * 1000 + TOO_LATE_MS
    return [message for message in found if _due_ms(message) > soonest and message.get_property(REAL_TOPIC)]


def _due_ms(message: ReceivedMessage) -> int:
    text = message.get_property(OUT_MS) or ""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 16 else 0


def _handle(message: ReceivedMessage) -> str:
    """Brokers add 1 ms, by which the handle's time falls into the slot of the timer."""
    topic, unique_key = message.get_property(REAL_TOPIC) or "", message.get_property(UNIQUE_KEY) or ""
    return RecallHandle(topic, message.broker_name, _due_ms(message) + 1, unique_key).text
