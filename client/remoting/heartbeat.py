"""Heartbeats: who we are and what we want, told to every known broker; what brokers say of themselves. Loop thread.

Two beats to one broker never cross; a beat that is asked for while one runs follows it.
"""

import asyncio
import logging
from collections.abc import Callable, Collection

import orjson

from firearrow._native.base.hash import java_hash
from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.client.base.errors import ClientError, NotRunning, check
from firearrow.client.base.options import ClientOptions
from firearrow.client.remoting.channels import Channels
from firearrow.client.remoting.client_roles import ConsumerRole, ProducerRole
from firearrow.client.remoting.routes import MASTER, RouteTable

log = logging.getLogger("firearrow.client")


class Heartbeats:
    def __init__(
        self,
        client_id: str,
        options: ClientOptions,
        channels: Channels,
        routes: RouteTable,
        producers: Callable[[], Collection[ProducerRole]],
        consumers: Callable[[], Collection[ConsumerRole]],
    ) -> None:
        self._client_id = client_id
        self._options = options
        self._channels = channels
        self._routes = routes
        self._producers = producers
        self._consumers = consumers
        self._versions: dict[str, int] = {}
        self._last_sent: dict[str, int] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    def version(self, address: str) -> int:
        """The version that the broker announced; 0 if it never answered."""
        return self._versions.get(address, 0)

    def forget(self) -> None:
        """What brokers were told is no longer true: the next beat says all of it."""
        self._last_sent.clear()

    async def beat_all(self) -> int:
        """To every master, and to slaves if there is a consumer; how many answered. Failures are logged."""
        consumers = bool(self._consumers())
        if not consumers and not self._producers():
            return 0
        wanted = [a for _, number, a in self._routes.addresses() if number == MASTER or consumers]
        answered = await asyncio.gather(*(self.beat(address) for address in dict.fromkeys(wanted)))
        return sum(answered)

    async def beat(self, address: str) -> bool:
        """To one broker; whether it answered."""
        lock = self._locks.setdefault(address, asyncio.Lock())
        async with lock:
            try:
                await self._beat(address)
            except (ClientError, NotRunning) as error:
                log.warning("heartbeat to %s: %s", address, error)
                return False
            return True

    async def _beat(self, address: str) -> None:
        data, print_of_it = self._data()
        brief = self._options.heartbeat_v2 and self._last_sent.get(address) == print_of_it
        if brief:
            for consumer in data["consumerDataSet"]:
                consumer["subscriptionDataSet"] = []
        data["clientID"] = self._client_id
        data["heartbeatFingerprint"] = print_of_it if self._options.heartbeat_v2 else 0
        data["withoutSub"] = brief
        request = RemotingCommand.request(RequestCode.HEART_BEAT, body=orjson.dumps(data))
        answer = check(await self._channels.call(address, request, self._options.api_timeout_s), address)
        self._versions[address] = answer.version
        if self._options.heartbeat_v2 and answer.ext.get("IS_SUPPORT_HEART_BEAT_V2") == "true":
            if brief and answer.ext.get("IS_SUB_CHANGE") == "true":
                self._last_sent.pop(address, None)
                await self._beat(address)
            else:
                self._last_sent[address] = print_of_it

    def _data(self) -> tuple[dict, int]:  # type: ignore[type-arg]
        """The whole body without who sends it, and its print, in which versions of subscriptions do not count."""
        data = {
            "clientID": "",
            "consumerDataSet": [consumer.heartbeat_data() for consumer in self._consumers()],
            "heartbeatFingerprint": 0,
            "producerDataSet": [{"groupName": producer.group} for producer in self._producers()],
            "withoutSub": False,
        }
        timeless = orjson.dumps(data, default=str).decode()
        for consumer in data["consumerDataSet"]:  # type: ignore[attr-defined]
            for subscription in consumer["subscriptionDataSet"]:
                timeless = timeless.replace(f'"subVersion":{subscription["subVersion"]}', '"subVersion":0')
        return data, java_hash(timeless)
