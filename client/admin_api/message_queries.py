"""MessageQueries: finds stored messages by offset id, unique id or key. Nothing is cached. Loop thread."""

import asyncio
import contextlib
import struct
from collections.abc import Mapping

from firearrow._native.store.log.received_message import ReceivedMessage, decode_messages
from firearrow._native.store.log.record import RecordError
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.client.base.compression import open_body
from firearrow.client.base.errors import ClientError, NoRoute, RocketMQError, check
from firearrow.client.base.names import Namespace
from firearrow.client.base.service_state import now_ms
from firearrow.client.remoting.client_instance import ClientInstance
from firearrow.client.remoting.routes import MASTER

IPV4_ID_CHARS, IPV6_ID_CHARS = 32, 56
UNIQUE_MAX = 32
UNIQUE_WINDOW_MS = 3 * 24 * 3600 * 1000
FOREVER_MS = (1 << 63) - 1
INDEX_TIMEOUT_FACTOR = 3
"""Index queries get this multiple of the usual timeout."""


class MessageQueries:
    """Topic names are the user's, also in the returned messages."""

    def __init__(self, instance: ClientInstance, timeout_s: float) -> None:
        self._instance = instance
        self._timeout_s = timeout_s
        self._namespace = Namespace(instance.options.namespace)

    async def view(self, topic: str, message_id: str) -> ReceivedMessage:
        """Find by offset id or unique id; both have the same form, so the offset is tried first. NO_MESSAGE (208)."""
        try:
            return await self.by_offset_id(topic, message_id)
        except ClientError:
            return await self.by_unique_id(topic, message_id)

    async def by_offset_id(self, topic: str, offset_message_id: str) -> ReceivedMessage:
        """ClientError: it is not an offset id, no broker answers, or no message begins at the offset."""
        address, physical_offset = decode_offset_id(offset_message_id)
        request = RemotingCommand.request(
            RequestCode.VIEW_MESSAGE_BY_ID,
            {"offset": str(physical_offset), "topic": self._namespace.wrap(topic)},
        )
        answer = check(await self._instance.call(address, request, self._timeout_s), address)
        found = self._decoded(answer.body, await self._name_of(address, topic))
        if len(found) != 1:
            raise ClientError(f"{address}: the answer contains {len(found)} messages instead of one")
        return found[0]

    async def by_unique_id(
        self, topic: str, unique_id: str, begin_ms: int | None = None, end_ms: int = FOREVER_MS
    ) -> ReceivedMessage:
        """The first message with this unique id, by default of the last three days. NO_MESSAGE (208)."""
        if begin_ms is None:
            begin_ms = now_ms() - UNIQUE_WINDOW_MS
        found = await self._search(topic, unique_id, UNIQUE_MAX, begin_ms, end_ms, unique=True)
        matching = [message for message in found if message.message_id == unique_id]
        if not matching:
            raise ClientError(f"topic {topic} has no message {unique_id}", ResponseCode.NO_MESSAGE)
        return matching[0]

    async def copies(
        self,
        topic: str,
        unique_id: str,
        brokers: Mapping[str, str],
        begin_ms: int = 0,
        *,
        all_answer: bool = False,
    ) -> list[ReceivedMessage]:
        """All messages of a topic with this unique id, at these brokers (name → address): also of topics that no
        name server knows, and what was stored several times. Oldest first. A broker that fails has none, or its error
        is raised (`all_answer`).
        """
        ext = self._fields(topic, unique_id, UNIQUE_MAX, begin_ms, FOREVER_MS, unique=True)
        answers = await asyncio.gather(
            *(self._search_at(name, address, ext) for name, address in brokers.items()),
            return_exceptions=True,
        )
        for answer in answers:
            if isinstance(answer, BaseException) and (all_answer or not isinstance(answer, RocketMQError)):
                raise answer
        found = [m for answer in answers if not isinstance(answer, BaseException) for m in answer]
        matching = [m for m in found if m.message_id == unique_id and m.topic == topic]
        return sorted(matching, key=lambda message: (message.store_timestamp, message.physical_offset))

    async def by_key(
        self, topic: str, key: str, most: int = 64, begin_ms: int = 0, end_ms: int = FOREVER_MS
    ) -> list[ReceivedMessage]:
        """At most `most` messages of each broker, oldest first; may be empty."""
        found = await self._search(topic, key, most, begin_ms, end_ms, unique=False)
        return [message for message in found if key in message.keys and message.topic == topic]

    async def _search(
        self, topic: str, key: str, most: int, begin_ms: int, end_ms: int, unique: bool
    ) -> list[ReceivedMessage]:
        """Query one address of each broker of the topic. Raises an error only if no broker answers."""
        wrapped = self._namespace.wrap(topic)
        await self._instance.routes.refresh(wrapped)
        route = self._instance.routes.known(wrapped)
        brokers = route.brokers if route is not None else {}
        ext = self._fields(topic, key, most, begin_ms, end_ms, unique)
        queries = [
            self._search_at(name, ids.get(MASTER) or next(iter(ids.values())), ext)
            for name, ids in brokers.items()
            if ids
        ]
        if not queries:
            raise NoRoute(f"topic {topic}: no broker serves it")
        answers = await asyncio.gather(*queries, return_exceptions=True)
        failures = [answer for answer in answers if isinstance(answer, BaseException)]
        for failure in failures:
            if not isinstance(failure, RocketMQError) or len(failures) == len(answers):
                raise failure
        found = [m for answer in answers if not isinstance(answer, BaseException) for m in answer]
        return sorted(found, key=lambda message: (message.store_timestamp, message.physical_offset))

    def _fields(
        self, topic: str, key: str, most: int, begin_ms: int, end_ms: int, unique: bool
    ) -> dict[str, str]:
        return {
            "topic": self._namespace.wrap(topic),
            "key": key,
            "maxNum": str(most),
            "beginTimestamp": str(begin_ms),
            "endTimestamp": str(end_ms),
            "indexType": "U" if unique else "K",
            "_UNIQUE_KEY_QUERY": str(unique).lower(),
        }

    async def _search_at(self, broker_name: str, address: str, ext: dict[str, str]) -> list[ReceivedMessage]:
        request = RemotingCommand.request(RequestCode.QUERY_MESSAGE, ext)
        answer = await self._instance.call(address, request, self._timeout_s * INDEX_TIMEOUT_FACTOR)
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return []
        return self._decoded(check(answer, broker_name).body, broker_name)

    def _decoded(self, body: bytes, broker_name: str) -> list[ReceivedMessage]:
        try:
            found = decode_messages(body, broker_name, open_body)
        except RecordError as error:
            raise ClientError(f"{broker_name}: the answer's messages cannot be read: {error}") from error
        if self._namespace.name:
            for message in found:
                message.topic = self._namespace.unwrap(message.topic)
        return found

    async def _name_of(self, address: str, topic: str) -> str:
        """The name of the broker at an address by the topic's route; else the address itself."""
        wrapped = self._namespace.wrap(topic)
        if self._instance.routes.known(wrapped) is None:
            with contextlib.suppress(NoRoute):
                await self._instance.routes.refresh(wrapped)
        known = self._instance.routes.addresses()
        return next((name for name, _, here in known if here == address), address)


def decode_offset_id(text: str) -> tuple[str, int]:
    """`host:port` and physical offset of an offset message id. ClientError NO_MESSAGE (208)."""
    from ipaddress import ip_address  # noqa: PLC0415 (slow, and few admins look for messages)

    size = {IPV4_ID_CHARS: 4, IPV6_ID_CHARS: 16}.get(len(text))
    if size is None:
        raise ClientError(f"message id {text[:64]!r} is not an offset message id", ResponseCode.NO_MESSAGE)
    try:
        raw = bytes.fromhex(text)
        port, physical_offset = struct.unpack_from(">iq", raw, size)
        ip = ip_address(raw[:size])
    except (ValueError, struct.error) as error:
        raise ClientError(f"message id {text!r}: {error}", ResponseCode.NO_MESSAGE) from error
    if not 0 < port < 65536 or physical_offset < 0:
        raise ClientError(f"message id {text} is not an offset message id", ResponseCode.NO_MESSAGE)
    return (f"[{ip}]:{port}" if ip.version == 6 else f"{ip}:{port}"), physical_offset
