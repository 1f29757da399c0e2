"""The limits of what a client of gRPC sends, at each and one past it, without a broker."""

import asyncio
import zlib
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from firearrow._native.store.log.record import Record
from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base.config import Config
from firearrow.broker.base.options import Options
from firearrow.broker.grpc import authorization, message_checks, message_codec, messages, settings
from firearrow.broker.grpc.client import ASKED_MAX, GrpcClient, GrpcClients
from firearrow.broker.grpc.message_checks import MessageChecks
from firearrow.broker.grpc.message_codec import COMPRESSED
from firearrow.broker.grpc.statuses import GrpcRefusal
from firearrow.broker.tables.groups import GroupConfig
from tests.support.clock import NOW_MS, ManualClock

HOST = bytes((127, 0, 0, 1, 0, 0, 0, 1))
RECORD = Record(0, 0, 0, 0, 0, 0, 0, 1, HOST, 1, HOST, 0, 0, b"", "T", b"")


def sent(**system: Any) -> Any:  # noqa: ANN401
    own = {"message_id": "ID", "message_type": "NORMAL"}
    return messages.Message(topic={"name": "T"}, body=b"x", system_properties=own | system)


def check(message: Any) -> str | None:  # noqa: ANN401
    """The code of its refusal; None: it may be sent."""
    try:
        MessageChecks(Config(Options()), ManualClock()).check(message)
    except GrpcRefusal as refusal:
        return refusal.code
    return None


def with_properties(count: int) -> Any:  # noqa: ANN401
    message = sent()
    for n in range(count):
        message.user_properties[str(n)] = "v"
    return message


def with_property_bytes(size: int) -> Any:  # noqa: ANN401
    message = sent(tag="tag", keys=["key"])
    message.user_properties["n"] = "v" * (size - len("tagkeyn"))
    return message


def due_after(delay_ms: int) -> Any:  # noqa: ANN401
    due_ms = int(NOW_MS) + delay_ms
    return sent(delivery_timestamp={"seconds": due_ms // 1000, "nanos": due_ms % 1000 * 1_000_000})


def recovered_after(seconds: int) -> Any:  # noqa: ANN401
    return sent(message_type="TRANSACTION", orphaned_transaction_recovery_duration={"seconds": seconds})


@pytest.mark.parametrize(
    ("made", "most", "code"),
    [
        (with_properties, message_checks.PROPERTIES_MAX, "MESSAGE_PROPERTIES_TOO_LARGE"),
        (with_property_bytes, message_checks.PROPERTY_BYTES_MAX, "MESSAGE_PROPERTIES_TOO_LARGE"),
        (
            lambda size: sent(message_group="g" * size),
            message_checks.GROUP_BYTES_MAX,
            "ILLEGAL_MESSAGE_GROUP",
        ),
        (lambda size: sent(message_id="i" * size), message_checks.ID_CHARS_MAX, "ILLEGAL_MESSAGE_ID"),
        (due_after, message_checks.DELAY_MS_MAX, "ILLEGAL_DELIVERY_TIME"),
        (recovered_after, message_checks.RECOVERY_S_MAX, "BAD_REQUEST"),
    ],
)
def test_a_message_is_bounded(made: Callable[[int], Any], most: int, code: str) -> None:
    assert check(made(most)) is None
    assert check(made(most + 1)) == code


def producer(topics: int, name_chars: int = 10) -> Any:  # noqa: ANN401
    names = [{"name": f"{n:0{name_chars}}"} for n in range(topics)]
    return messages.Settings(client_type="PRODUCER", publishing={"topics": names})


def consumer(topics: int) -> Any:  # noqa: ANN401
    entries = [{"topic": {"name": f"t{n}"}} for n in range(topics)]
    subscription = {"group": {"name": "g"}, "subscriptions": entries}
    return messages.Settings(client_type="PUSH_CONSUMER", subscription=subscription)


@pytest.mark.parametrize("made", [producer, consumer])
def test_topics_of_settings_are_bounded(made: Callable[[int], Any]) -> None:
    settings.check(made(settings.TOPICS_MAX))
    with pytest.raises(GrpcRefusal, match="BAD_REQUEST"):
        settings.check(made(settings.TOPICS_MAX + 1))


def test_bytes_of_settings_are_bounded() -> None:
    given = producer(1)
    given.user_agent.platform = "p" * settings.BYTES_MAX
    given.user_agent.platform = "p" * (2 * settings.BYTES_MAX - given.ByteSize())
    assert given.ByteSize() == settings.BYTES_MAX
    settings.check(given)
    given.user_agent.platform += "p"
    with pytest.raises(GrpcRefusal, match="BAD_REQUEST"):
        settings.check(given)


@pytest.mark.parametrize(("more", "expected"), [(0, settings.RETRIES_MAX), (1, settings.RETRIES_MAX)])
def test_delays_of_retries_are_bounded(more: int, expected: int) -> None:
    """Those after them are left out."""
    delays = {"next": [1000] * (settings.RETRIES_MAX + more)}
    config = GroupConfig("g", retry_policy={"type": "CUSTOMIZED", "customizedRetryPolicy": delays})
    completed = settings.completed(consumer(1), config, Options())
    assert len(completed.backoff_policy.customized_backoff.next) == expected


@pytest.mark.parametrize(("more", "is_kept"), [(0, True), (1, False)])
def test_a_delay_of_a_retry_is_bounded(more: int, is_kept: bool) -> None:
    """A longer one counts as none: the group has the usual ones."""
    delays = {"next": [settings.DELAY_MS_MAX + more]}
    config = GroupConfig("g", retry_policy={"type": "CUSTOMIZED", "customizedRetryPolicy": delays})
    completed = settings.completed(consumer(1), config, Options())
    assert (len(completed.backoff_policy.customized_backoff.next) == 1) == is_kept


def test_the_id_of_a_client_is_bounded() -> None:
    assert authorization.client_fault("c" * authorization.CLIENT_ID_CHARS_MAX) is None
    assert authorization.client_fault("c" * (authorization.CLIENT_ID_CHARS_MAX + 1)) is not None


def test_items_of_the_authorization_are_bounded() -> None:
    """Those after them are part of the last one."""
    others = ",".join(f"k{n}=v" for n in range(authorization.ITEMS_MAX - 1))
    headers = {"x-mq-client-id": "c", "authorization": f"MQv2-HMAC-SHA1 {others},Credential=u"}
    assert authorization.client_of(headers) == ("c", "u")
    headers["authorization"] = f"MQv2-HMAC-SHA1 {others},k=v,Credential=u"
    assert authorization.client_of(headers) == ("c", "")


@pytest.mark.parametrize(("more", "is_inflated"), [(0, True), (1, False)])
def test_inflated_bodies_are_bounded(more: int, is_inflated: bool) -> None:
    """A larger one is sent as its producer compressed it."""
    body = bytes(message_codec.INFLATED_BYTES_MAX + more)
    packed = zlib.compress(body)
    record = replace(RECORD, body=packed, sys_flag=COMPRESSED)
    found = message_codec.message_to(record, "T", NOW_MS)
    assert found.body == (body if is_inflated else packed)


class OpenStream:
    """A Telemetry stream that nothing answers."""

    is_open = True
    is_slow = False

    def send(self, message: bytes) -> None:
        pass

    def finish(self) -> None:
        self.is_open = False


def a_client(loop: asyncio.AbstractEventLoop) -> GrpcClient:
    peer = SimpleNamespace(remote=("127.0.0.1", 1), local=("127.0.0.1", 2), number=1)
    clients = GrpcClients(loop, SimpleNamespace())  # type: ignore[arg-type]
    found = clients.find(peer, "c", "", {})  # type: ignore[arg-type]
    found.telemetry = OpenStream()  # type: ignore[assignment]
    return found


def test_commands_to_a_client_are_bounded() -> None:
    command = RemotingCommand.request(RequestCode.GET_CONSUMER_RUNNING_INFO, {})

    async def ask() -> list[BaseException | RemotingCommand]:
        client = a_client(asyncio.get_running_loop())
        asked = [asyncio.ensure_future(client.ask(command, 60)) for _ in range(ASKED_MAX + 1)]
        await asyncio.sleep(0)
        assert sum(each.done() for each in asked) == 1
        client.close()
        return await asyncio.gather(*asked, return_exceptions=True)

    *others, last = asyncio.run(ask())
    assert {str(each) for each in others} == {"the client has ended"}
    assert "commands to answer already" in str(last)
