"""Heartbeats: report the groups and subscriptions of this client to every known broker.

They keep the version of each broker. Heartbeats to one broker are sent one after the other, never
concurrently; those that wait for the same one are sent as one. A broker that does not answer holds up nothing
else: after its first heartbeat without an answer, no caller waits for it until it answers again. Loop thread.
"""

import asyncio
import functools
import logging
from collections.abc import Callable, Collection, Iterable

import orjson

from firearrow._native.base.hash import java_hash
from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.client.base.errors import ClientError, NotRunning, check
from firearrow.client.base.options import ClientOptions
from firearrow.client.base.service_state import now_ms
from firearrow.client.base.state_log import FAILING_S, StateLog
from firearrow.client.remoting.channels import Channels
from firearrow.client.remoting.client_roles import ConsumerRole, ProducerRole
from firearrow.client.remoting.routes import MASTER, RouteTable

log = logging.getLogger("firearrow.client")

PROBE_PAUSE_S = 0.5
SLOW_S = 0.5
"""A heartbeat that fails later than this has met a broker that is silent, not one that is down."""


class Heartbeats:
    def __init__(
        self,
        client_id: str,
        options: ClientOptions,
        channels: Channels,
        routes: RouteTable,
        producers: Callable[[], Collection[ProducerRole]],
        consumers: Callable[[], Collection[ConsumerRole]],
        answers_again: Callable[[], None] = lambda: None,
        failed: Callable[[Exception], None] = lambda error: None,
    ) -> None:
        """`answers_again` is called when a silent broker answers, `failed` when a heartbeat has failed."""
        self._client_id = client_id
        self._options = options
        self._channels = channels
        self._routes = routes
        self._producers = producers
        self._consumers = consumers
        self._versions: dict[str, int] = {}
        self._last_sent: dict[str, int] = {}
        self._answers_again = answers_again
        self._failed = failed
        self._failing = StateLog(
            log, "broker %s answers heartbeats again, %d failed", channels.loop.time, quiet_s=FAILING_S
        )
        self.answered_ms: int | None = None
        """When a broker last answered, ms since 1970. Any thread."""
        self._silent: set[str] = set()
        self._probes: dict[str, asyncio.Task[None]] = {}
        self.silence_listeners: list[Callable[[], None]] = []
        """Called when a broker becomes silent, or answers again."""
        self._running: dict[str, asyncio.Task[bool]] = {}
        self._next: dict[str, asyncio.Task[bool]] = {}

    def version(self, address: str) -> int:
        """The version in the broker's last answer; 0 if it never answered."""
        return self._versions.get(address, 0)

    def forget(self) -> None:
        """The groups have changed: the next heartbeat reports everything."""
        self._last_sent.clear()

    async def beat_all(self) -> int:
        """Send to every master, and to slaves if there is a consumer.

        Returns how many answered within one timeout; failures are logged.
        """
        consumers = bool(self._consumers())
        if not consumers and not self._producers():
            return 0
        targets = [a for _, broker_id, a in self._routes.addresses() if broker_id == MASTER or consumers]
        return len(await self.beat_to(targets))

    async def beat_to(self, addresses: Iterable[str]) -> set[str]:
        """Send to these brokers, and wait for the answers of those that are not silent. Returns who answered."""
        beats = {address: self._beat_soon(address) for address in dict.fromkeys(addresses)}
        awaited = [beat for address, beat in beats.items() if address not in self._silent]
        if awaited:
            await asyncio.wait(awaited, timeout=self._options.api_timeout_s)
        return {address for address, beat in beats.items() if _answered(beat)}

    async def beat(self, address: str) -> bool:
        """Send to one broker. Returns whether it answered."""
        return await asyncio.shield(self._beat_soon(address))

    def beat_on_open(self, address: str) -> asyncio.Task[bool]:
        """The heartbeat that goes over a connection opened now: the one under way, for which it may have been opened
        and which fails with the one before; else a new one. Another one after each that fails would connect without
        a pause."""
        return self._running.get(address) or self._beat_soon(address)

    def is_silent(self, address: str | None) -> bool:
        """Whether the broker was reached and has not answered since: a request to it may wait in vain."""
        return address in self._silent

    @property
    def silent(self) -> bool:
        """Whether any broker is silent."""
        return bool(self._silent)

    def suspect(self, address: str) -> None:
        """A request had no answer in time: the broker is silent until it answers a heartbeat."""
        if address not in self._silent:
            self._now_silent(address)

    def _now_silent(self, address: str) -> None:
        self._silent.add(address)
        self._notify()
        if address not in self._probes:
            probe = asyncio.get_running_loop().create_task(self._probe(address))
            self._probes[address] = probe
            probe.add_done_callback(lambda _: self._probes.pop(address, None))

    async def _probe(self, address: str) -> None:
        """Send heartbeats until it answers, or no route names it any more."""
        while address in self._silent and not await self.beat(address):
            await asyncio.sleep(PROBE_PAUSE_S)
            if not self._routes.has_address(address):
                self._silent.discard(address)
                self._notify()

    def _notify(self) -> None:
        for listener in self.silence_listeners:
            listener()

    def is_beating(self, address: str) -> bool:
        """Whether a heartbeat to this broker is under way."""
        return address in self._running

    def close(self) -> None:
        for beat in (*self._running.values(), *self._next.values(), *self._probes.values()):
            beat.cancel()

    def _beat_soon(self, address: str) -> asyncio.Task[bool]:
        """A heartbeat with the state of now: a new one, or the one that waits for the one under way."""
        running, waiting = self._running.get(address), self._next.get(address)
        if waiting is not None:
            return waiting
        beat = asyncio.get_running_loop().create_task(self._beat_after(running, address))
        table = self._running if running is None else self._next
        table[address] = beat
        beat.add_done_callback(functools.partial(self._ended, address))
        return beat

    async def _beat_after(self, running: asyncio.Task[bool] | None, address: str) -> bool:
        if running is not None:
            await asyncio.wait((running,))
            self._running[address] = self._next.pop(address)
        began_s = self._channels.loop.time()
        try:
            await self._beat(address)
        except NotRunning:
            return False  # the client closes
        except ClientError as error:
            self._failed(error)
            self._failing.failed(address, error, "heartbeat to %s failed: %s", address, error)
            if self._channels.loop.time() - began_s >= SLOW_S:
                self._now_silent(address)
            return False
        self.answered_ms = now_ms()
        self._failing.is_absent(address)
        if address in self._silent:
            self._silent.discard(address)
            self._notify()
            self._answers_again()
        return True

    def _ended(self, address: str, beat: asyncio.Task[bool]) -> None:
        for table in (self._running, self._next):
            if table.get(address) is beat:
                del table[address]
        if not beat.cancelled() and (error := beat.exception()) is not None:
            log.error("the heartbeat to %s failed", address, exc_info=error)

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


def _answered(beat: asyncio.Task[bool]) -> bool:
    return beat.done() and not beat.cancelled() and beat.exception() is None and beat.result()
