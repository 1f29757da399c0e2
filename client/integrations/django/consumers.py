"""`handler`: functions that `manage.py consume` calls with messages, and the consumers that it runs.

    @handler("orders", group="shop-mail", tags="new")
    def send_mail(messages): ...

The command imports `consumers.py` of each application. Handlers of one group share a consumer.
"""

import functools
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

try:
    from django.db import close_old_connections
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("django is missing: pip install 'firearrow[django]'", name="django") from error

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.base.errors import ConfigError
from firearrow.client.base.hooks import is_coroutine_function
from firearrow.client.blocking import PushConsumer
from firearrow.client.consume.listeners import Handler
from firearrow.client.integrations.django.settings import client_options, consumer_options

AnyHandler = TypeVar("AnyHandler", bound=Handler)


@dataclass(frozen=True, slots=True)
class Subscribed:
    handler: Handler
    tags: str | None
    sql: str | None


handlers: dict[str, dict[str, Subscribed]] = defaultdict(dict)
"""By group and topic."""


def handler(
    topic: str, *, group: str, tags: str | None = None, sql: str | None = None
) -> Callable[[AnyHandler], AnyHandler]:
    """Have `manage.py consume` call the function with lists of messages, as PushConsumer does. ConfigError."""

    def declare(function: AnyHandler) -> AnyHandler:
        known = handlers[group].get(topic)
        if known is not None and _name(known.handler) != _name(function):
            raise ConfigError(f"group {group} has two handlers of topic {topic}")
        handlers[group][topic] = Subscribed(function, tags, sql)
        return function

    return declare


def _name(function: Any) -> tuple[object, object]:
    return getattr(function, "__module__", None), getattr(function, "__qualname__", function)


def consumer_of(group: str) -> PushConsumer:
    """A consumer with the handlers of the group, not started."""
    made = PushConsumer(group, options=consumer_options(group), client=client_options())
    for topic, subscribed in handlers[group].items():
        made.subscribe(topic, _with_connections(subscribed.handler), tags=subscribed.tags, sql=subscribed.sql)
    return made


def _with_connections(function: Handler) -> Handler:
    """As Django does around each request: a thread's connection that is broken or too old is not used again."""
    if is_coroutine_function(function):
        return function

    @functools.wraps(function)
    def call(messages: list[ReceivedMessage]) -> object:
        close_old_connections()
        try:
            return function(messages)
        finally:
            close_old_connections()

    return call
