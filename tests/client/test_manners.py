"""What users see before and beside the messages: names, options, handlers and log lines."""

import logging
from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import pytest

import firearrow.client as public
from firearrow.client.base import errors
from firearrow.client.base.errors import ConfigError
from firearrow.client.base.message import Message
from firearrow.client.base.options import (
    CompressionKind,
    ConsumeFromWhere,
    MessageModel,
    PopConsumerOptions,
    ProducerOptions,
    PullConsumerOptions,
    PushConsumerOptions,
)
from firearrow.client.consumers.pull_consumer import PullConsumer
from firearrow.client.consumers.push_consumer import PushConsumer
from firearrow.client.send.producer import Producer
from tests.client.conftest import unique
from tests.support.eventually import eventually_async

Topics = Callable[..., str]


def test_all_public_names_are_listed() -> None:
    assert set(public.__all__) <= set(dir(public))


def test_all_errors_are_public() -> None:
    defined = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, Exception)
    }
    assert defined <= set(public.__all__)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        (ProducerOptions, "compression"),
        (PushConsumerOptions, "model"), (PushConsumerOptions, "from_where"),
        (PullConsumerOptions, "model"), (PullConsumerOptions, "from_where"),
        (PopConsumerOptions, "from_where"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("value", ["whatever", "", 7, None])
def test_an_option_that_is_no_member_of_its_enum_is_refused(
    options: Callable[..., object], name: str, value: object
) -> None:
    with pytest.raises(ConfigError, match=rf"{name} must be \w+\.\w+ or .*, not {value!r}"):
        options(**{name: value})


def test_the_value_of_a_member_is_that_member() -> None:
    made = PushConsumerOptions(model="BROADCASTING", from_where="CONSUME_FROM_FIRST_OFFSET")  # type: ignore[arg-type]
    assert made.model is MessageModel.BROADCASTING
    assert made.from_where is ConsumeFromWhere.FIRST_OFFSET
    assert ProducerOptions(compression="LZ4").compression is CompressionKind.LZ4  # type: ignore[arg-type]


class Handlers:
    def method(self, messages: object) -> None: ...
    def bare(self) -> None: ...
    async def __call__(self, messages: object) -> None: ...


def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def handler(messages: list[object]) -> None:
        for message in messages:
            function(message, "more")

    return handler


def one_by_one(message: object, more: str) -> None: ...


def with_default(messages: object, more: int = 1) -> None: ...


def no_argument() -> None: ...


async def two_arguments(messages: object, context: object) -> None: ...


@pytest.mark.parametrize(
    "handler", [no_argument, two_arguments, Handlers().bare, one_by_one, lambda *, key: None]
)
def test_a_handler_that_cannot_be_called_is_refused_at_once(handler: Callable[..., Any]) -> None:
    consumer = PushConsumer("g", name_server="127.0.0.1:1")
    with pytest.raises(
        ConfigError, match="orders: a handler is called with one argument, the list of messages"
    ):
        consumer.subscribe("orders", handler)
    with pytest.raises(ConfigError):
        consumer.subscribe("orders")(handler)


@pytest.mark.parametrize(
    "handler",
    [
        with_default, decorated(one_by_one), Handlers(), Handlers().method, list[object]().extend, print,
        lambda *arguments: None, lambda messages, **more: None, partial(two_arguments, context=1),
        partial(one_by_one, more="x"),
    ],
)  # fmt: skip
def test_a_handler_that_works_is_not_refused(handler: Callable[..., Any]) -> None:
    PushConsumer("g", name_server="127.0.0.1:1").subscribe("orders", handler)


async def test_a_failed_handlers_log_line_names_the_message(
    name_server: str, topics: Topics, caplog: pytest.LogCaptureFixture
) -> None:
    topic = topics(queues=1)
    options = PushConsumerOptions(from_where=ConsumeFromWhere.FIRST_OFFSET)
    consumer = PushConsumer(unique("g"), name_server=name_server, options=options)

    @consumer.subscribe(topic)
    async def fails(messages: object) -> None:
        raise RuntimeError("no")

    async with Producer(unique("p"), name_server=name_server) as producer:
        await producer.send(Message(topic, b"0"))
        sent = await producer.send(Message(topic, b"x"))
    async with consumer:
        await eventually_async(lambda: f"message {sent.message_id} at offset 1, try 1" in caplog.text)


async def test_new_groups_warn_of_nothing(
    name_server: str, topics: Topics, caplog: pytest.LogCaptureFixture
) -> None:
    topic = topics(queues=2)
    caplog.set_level(logging.WARNING, "firearrow.client")
    async with Producer(unique("p"), name_server=name_server) as producer:
        for _ in range(4):
            async with PullConsumer(unique("g"), name_server=name_server) as consumer:
                consumer.subscribe(topic)
                await producer.send(Message(topic, b"x"))
                assert len(await consumer.poll(5)) == 1
    assert caplog.text == ""
