"""What may go to another process: every public value of the client, equal after pickling and copying; nothing live."""

import copy
import dataclasses
import enum
import multiprocessing
import pickle
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import datetime
from typing import Any, get_args, get_origin, get_type_hints

import pytest

import firearrow.client
from firearrow.client import (
    BrokerError,
    ClientError,
    ClientOptions,
    ConsumeFromWhere,
    Message,
    OnlyFireArrow,
    Operations,
    Producer,
    PullConsumer,
    PullConsumerOptions,
    PushConsumer,
    ReceivedMessage,
    RocketMQError,
    Transaction,
    blocking,
)
from firearrow.client.admin_api import cluster_admin, extension_records, records, replicas, roles, users
from firearrow.client.base import hooks
from firearrow.client.base.service_state import Uncopied
from firearrow.client.consumers import pop_consumer
from firearrow.client.remoting.client_id import build_client_id

PUBLIC = {name: getattr(firearrow.client, name) for name in firearrow.client.__all__}
LIVE = {"Admin", "Extensions", "LocalBroker", "Operations", "PopConsumer", "Producer", "PullConsumer"} | {
    "PushConsumer",
    "Transaction",
}
FUNCTIONS = {"by_hash", "by_random", "split", "add_call_hook", "remove_call_hook"}
CALLS = {"Call", "Caller"}
"""What a CallHook gets while its producer or consumer works: it refers to that."""
RECORDS = [
    kind
    for module in (cluster_admin, extension_records, records, replicas, roles, users, hooks)
    for kind in vars(module).values()
    if isinstance(kind, type) and dataclasses.is_dataclass(kind) and kind.__module__ == module.__name__
]
WAYS: dict[str, Callable[[Any], Any]] = {
    "pickle": lambda value: pickle.loads(pickle.dumps(value)),
    "oldest pickle": lambda value: pickle.loads(pickle.dumps(value, 2)),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}
ERROR_ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "BrokerError": (16, "username cannot be null.", "broker-a"),
    "OnlyFireArrow": ("broker-a",),
}


def example(kind: Any) -> Any:  # noqa: ANN401
    """Some value of a type: of a record each field has one, too."""
    if get_origin(kind) is not None:
        origin, arguments = get_origin(kind), get_args(kind)
        simple = {list: [], tuple: (), dict: {}, frozenset: frozenset(), set: set()}
        if isinstance(origin, type) and issubclass(origin, Sequence):
            return simple.get(origin, ())
        return simple[origin] if origin in simple else example(next(iter(arguments), None))
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return next(iter(kind))
    if (isinstance(kind, type) and dataclasses.is_dataclass(kind)) or hasattr(kind, "_fields"):
        hints = get_type_hints(kind, localns={"ReceivedMessage": object})
        names = (
            [one.name for one in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else kind._fields
        )
        return kind(**{name: example(hints[name]) for name in names})
    if kind is datetime:
        return datetime(2026, 1, 1)
    return {int: 7, str: "seven", bytes: b"seven", float: 0.5, bool: True}.get(kind)


def public_values() -> list[tuple[str, Any]]:
    values: list[tuple[str, Any]] = []
    for name, kind in PUBLIC.items():
        if name in LIVE | FUNCTIONS | CALLS | {"ReceivedMessage"}:
            continue
        if issubclass(kind, BaseException):
            values.append((name, kind(*ERROR_ARGUMENTS.get(name, ("it failed",)))))
        elif name.endswith("Options"):
            values.append((name, kind()))
        elif name == "SocksProxy":
            values.append((name, kind("host:1080", "user", "password")))
        else:
            values.append((name, example(kind)))
    return values + [(kind.__name__, example(kind)) for kind in RECORDS]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("name", "value"), public_values(), ids=lambda value: value if isinstance(value, str) else ""
)
def test_every_public_value_is_equal_afterwards(name: str, value: object, way: str) -> None:
    again = WAYS[way](value)
    assert type(again) is type(value)
    if isinstance(value, BaseException):
        assert (str(again), again.args, vars(again)) == (str(value), value.args, vars(value))
        assert getattr(again, "code", None) == getattr(value, "code", None)
    else:
        assert again == value


def test_errors_keep_what_they_carry() -> None:
    refused = pickle.loads(pickle.dumps(BrokerError(2, "busy", "broker-a")))
    assert (refused.code, refused.remark, refused.broker) == (2, "busy", "broker-a")
    only = pickle.loads(pickle.dumps(OnlyFireArrow("broker-b")))
    assert (only.code, only.broker) == (3, "broker-b")
    assert copy.copy(ClientError("text", 77)).code == 77
    assert isinstance(only, RocketMQError)


def live_objects() -> list[Any]:
    admin = firearrow.client.Admin("127.0.0.1:9")
    return [
        admin,
        firearrow.client.Extensions(admin),
        Operations(admin),
        Producer("group"),
        PullConsumer("group"),
        PushConsumer("group"),
        pop_consumer.PopConsumer("group"),
        Transaction.__new__(Transaction),
        firearrow.client.LocalBroker.__new__(firearrow.client.LocalBroker),
    ] + [getattr(blocking, name).__new__(getattr(blocking, name)) for name in blocking.__all__]


def test_live_objects_say_what_to_do() -> None:
    objects = live_objects()
    assert {type(one).__name__ for one in objects} == LIVE | set(blocking.__all__)
    for one in objects:
        assert isinstance(one, Uncopied)
        for way in WAYS.values():
            with pytest.raises(
                TypeError, match=f"{type(one).__name__} can be neither pickled nor copied: create one"
            ):
                way(one)


def contents(message: ReceivedMessage) -> tuple[object, ...]:
    return (
        *(message.topic, message.body, message.keys, message.tags, message.queue, message.queue_offset),
        *(
            message.born_host,
            message.store_host,
            message.store_timestamp,
            message.message_id,
            message.body_crc,
        ),
        *(message.offset_message_id, message.properties, message.reconsume_times, message.body_bytes),
    )


async def test_received_messages(name_server: str, topics: Callable[..., str]) -> None:
    """Plain and compressed ones, before and after their first use, changed ones; to another process, too."""
    topic = topics(1)
    bodies = (b"work", b"much work" * 1000)
    async with Producer("p", name_server=name_server) as producer:
        for body in bodies:
            await producer.send(Message(topic, body, keys=["k"], tags="t", properties={"a": "b"}))
    options = PullConsumerOptions(from_where=ConsumeFromWhere.FIRST_OFFSET)
    got: list[ReceivedMessage] = []
    async with PullConsumer("g", name_server=name_server, options=options) as consumer:
        consumer.subscribe(topic)
        while len(got) < 2:
            got += await consumer.poll(timeout_s=5)
    fresh = [WAYS[way](message) for message in got for way in WAYS]  # bodies are not decompressed yet
    for message, copied in zip([message for message in got for _ in WAYS], fresh, strict=True):
        assert contents(copied) == contents(message)
        assert (copied, hash(copied)) == (message, hash(message))
        assert WAYS["pickle"](copied) == message
    assert [message.body for message in got] == list(bodies)
    assert len(pickle.dumps(got[0])) < 1000  # not the whole answer of the broker
    for way in WAYS.values():
        changed = way(got[0])
        changed.put_property("a", "c")
        changed.body, changed.topic, changed.reconsume_times = b"other", "elsewhere", 3
        assert contents(way(changed)) == contents(changed)
        assert changed != got[0]
        assert (got[0].get_property("a"), got[0].body) == ("b", b"work")
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        assert list(pool.map(contents, got)) == [contents(message) for message in got]


def test_options_in_another_process_make_another_client() -> None:
    """Two members of one group with one client id would take each other's queues."""
    options = ClientOptions(name_server="127.0.0.1:9876")
    assert WAYS["deepcopy"](options).generated_name == options.generated_name
    for method in ("spawn", "fork"):
        with ProcessPoolExecutor(2, multiprocessing.get_context(method)) as pool:
            assert pool.submit(build_client_id, options).result() != build_client_id(options)
    with multiprocessing.get_context("fork").Pool(1, initializer=_inherit, initargs=(options,)) as processes:
        ids = processes.apply(_inherited_id)
    assert ids[0] == ids[1] != build_client_id(options)


_kept: list[ClientOptions] = []


def _inherit(options: ClientOptions) -> None:
    _kept.append(options)


def _inherited_id() -> tuple[str, str]:
    return build_client_id(_kept[0]), build_client_id(_kept[0])
