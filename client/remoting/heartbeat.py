"""Heartbeats: report the groups and subscriptions of this client to every known broker.

They keep the version of each broker. Heartbeats to one broker are sent one after the other, never
concurrently. Loop thread.
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
        """The version in the broker's last answer; 0 if it never answered."""
        return self._versions.get(address, 0)

    def forget(self) -> None:
        """The groups have changed: the next heartbeat reports everything."""
        self._last_sent.clear()

    async def beat_all(self) -> int:
        """Send to every master, and to slaves if there is a consumer.

        Returns how many answered; failures are logged.
        """
        consumers = bool(self._consumers())
        if not consumers and not self._producers():
            return 0
        targets = [a for _, broker_id, a in self._routes.addresses() if broker_id == MASTER or consumers]
        answered = await asyncio.gather(*(self.beat(address) for address in dict.fromkeys(targets)))
        return sum(answered)

    async def beat(self, address: str) -> bool:
        """Send to one broker. Returns whether it answered."""
        lock = self._locks.setdefault(address, asyncio.Lock())
        async with lock:
            try:
                await self._beat(address)
            except (ClientError, NotRunning) as error:
                log.warning("heartbeat to %s failed: %s", address, error)
                return False
            return True

    async def _beat(self, address: str) -> None:
        data, fingerprint = self._data()
        brief = self._options.heartbeat_v2 and self._last_sent.get(address) == fingerprint
        if brief:
            for consumer in data["consumerDataSet"]:
                consumer["subscriptionDataSet"] = []
        data["clientID"] = self._client_id
        data["heartbeatFingerprint"] = fingerprint if self._options.heartbeat_v2 else 0
        data["withoutSub"] = brief
        request = RemotingCommand.request(RequestCode.HEART_BEAT, body=orjson.dumps(data))
        answer = check(await self._channels.call(address, request, self._options.api_timeout_s), address)
        self._versions[address] = answer.version
        if self._options.heartbeat_v2 and answer.ext.get("IS_SUPPORT_HEART_BEAT_V2") == "true":
            if brief and answer.ext.get("IS_SUB_CHANGE") == "true":
                self._last_sent.pop(address, None)
                await self._beat(address)
            else:
                self._last_sent[address] = fingerprint

    def _data(self) -> tuple[dict, int]:  # type: ignore[type-arg]
        """The body without the client id, and its fingerprint, which ignores subscription versions."""
        data = {
            "clientID": "",
            "consumerDataSet": [consumer.heartbeat_data() for consumer in self._consumers()],
            "heartbeatFingerprint": 0,
            "producerDataSet": [{"groupName": producer.group} for producer in self._producers()],
            "withoutSub": False,
        }
        unversioned = orjson.dumps(data, default=str).decode()
        for consumer in data["consumerDataSet"]:  # type: ignore[attr-defined]
            for subscription in consumer["subscriptionDataSet"]:
                unversioned = unversioned.replace(
                    f'"subVersion":{subscription["subVersion"]}', '"subVersion":0'
                )
        return data, java_hash(unversioned)
