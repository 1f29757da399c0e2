"""The registrar: what it sends to which name server and when; a name server that fails does not affect it."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.app.name_server import NameServer
from firearrow.broker.base.peer import Address, Peer
from firearrow.broker.net.dispatch import Dispatch
from firearrow.broker.net.server import Server
from firearrow.broker.services import registration as timing
from firearrow.broker.services.registration import Registrar, addresses
from firearrow.broker.tables.naming_options import NamingOptions
from firearrow.broker.tables.registration import BrokerIdentity, Registration, register_body
from firearrow.broker.tables.routes import BrokerLiveInfo
from firearrow.broker.tables.topics import TopicConfig, TopicSettings, TopicTable
from tests.support.clock import ManualClock
from tests.support.name_server_harness import NameServerHarness, no_connection
from tests.support.peers import RecordedPeer

OTHER: Address = ("192.0.2.1", 9876)
OURS = BrokerIdentity("C", "own", "", 10911)
WAIT_S = 10.0


class RemoteNameServer:
    """A simulated name server: `answers` returns the response to each request; `down` refuses connections."""

    def __init__(
        self, answers: Callable[[RemotingCommand], RemotingCommand] = RemotingCommand.answer
    ) -> None:
        self.answers = answers
        self.down = False
        self.peers: list[RecordedPeer] = []
        self.requests: asyncio.Queue[RemotingCommand] = asyncio.Queue()
        self.tried: asyncio.Queue[Address] = asyncio.Queue()

    async def connect(self, host: str, port: int) -> RecordedPeer:
        self.tried.put_nowait((host, port))
        if self.down:
            raise ConnectionRefusedError("refused")
        self.peers.append(RecordedPeer(local=("198.51.100.7", 50000), asked=self._asked))
        return self.peers[-1]

    def _asked(self, request: RemotingCommand) -> RemotingCommand:
        self.requests.put_nowait(request)
        return self.answers(request)

    async def next(self) -> RemotingCommand:
        return await asyncio.wait_for(self.requests.get(), WAIT_S)

    async def next_topics(self) -> set[str]:
        request = await self.next()
        assert request.code == RequestCode.REGISTER_BROKER
        return set(register_body(request.body, request.version, False).topics)


class RegistrarHarness:
    """Our broker's side: topics and a registrar that is notified of their changes."""

    def __init__(
        self,
        outside: RemoteNameServer | None,
        own: NameServerHarness | None = None,
        identity: BrokerIdentity = OURS,
    ) -> None:
        self.clock = ManualClock()
        self.topics = TopicTable(self.clock, TopicSettings(cluster="C", broker="own"))
        self.registrar = Registrar(
            identity,
            self.topics,
            permission=lambda: 6,
            own=None if own is None else (own.routes, own.server.kv),
            others=[] if outside is None else [OTHER],
            connect=(outside or RemoteNameServer()).connect,
            period_ms=30_000,
        )
        self.topics.listen(self.registrar.changed)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "RETRY_S", 0.0)
    monkeypatch.setattr(timing, "BATCH_CHANGES_S", 0.0)


def run(main: Coroutine[Any, Any, None]) -> None:
    uvloop.run(asyncio.wait_for(main, 3 * WAIT_S))


def test_all_topics_at_start_and_changed_ones_at_once() -> None:
    async def main() -> None:
        outside = RemoteNameServer()
        harness = RegistrarHarness(outside)
        harness.registrar.start()
        first = await outside.next()
        assert first.ext["brokerAddr"] == "198.51.100.7:10911"
        assert set(register_body(first.body, 513, False).topics) == set(harness.topics)
        harness.topics.create("N1", 4)
        assert await outside.next_topics() == {"N1"}
        harness.topics.create("N2", 4)
        harness.topics.create("N3", 4)
        assert await outside.next_topics() == {"N2", "N3"}
        await harness.registrar.stop()
        goodbye = outside.peers[0].requests[-1]
        assert (goodbye.code, goodbye.ext["brokerId"]) == (RequestCode.UNREGISTER_BROKER, "0")
        assert goodbye.is_oneway
        assert outside.peers[0].closed

    run(main())


@pytest.mark.parametrize(
    ("host", "bound", "reported"),
    [
        ("", "", "198.51.100.7"),
        ("", "127.0.0.1", "127.0.0.1"),
        ("192.0.2.9", "127.0.0.1", "192.0.2.9"),
        ("", "::1", "[::1]"),
    ],
)
def test_the_reported_address(host: str, bound: str, reported: str) -> None:
    async def main() -> None:
        outside = RemoteNameServer()
        harness = RegistrarHarness(outside, identity=BrokerIdentity("C", "own", host, 10911, bound=bound))
        harness.registrar.start()
        registration = await outside.next()
        assert registration.ext["brokerAddr"] == f"{reported}:10911"
        assert registration.ext["haServerAddr"] == f"{reported}:0"
        await harness.registrar.stop()
        assert outside.peers[0].requests[-1].ext["brokerAddr"] == f"{reported}:10911"

    run(main())


def test_everything_again_each_period(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "PERIOD_S", (0.01, 0.01))

    async def main() -> None:
        outside = RemoteNameServer()
        harness = RegistrarHarness(outside)
        harness.registrar.start()
        for _ in range(3):
            assert await outside.next_topics() == set(harness.topics)
        assert len(outside.peers) == 1
        await harness.registrar.stop()

    run(main())


@pytest.mark.parametrize(("given_ms", "period_s"), [(0, 10), (9_999, 10), (30_000, 30), (60_001, 60)])
def test_the_period_is_bounded(given_ms: int, period_s: float) -> None:
    harness = RegistrarHarness(None)
    made = Registrar(
        BrokerIdentity("C", "b", "", 1),
        harness.topics,
        permission=lambda: 6,
        own=None,
        others=[],
        connect=RemoteNameServer().connect,
        period_ms=given_ms,
    )
    assert made._period_s == period_s


def test_a_lost_connection_is_reopened_with_all_topics() -> None:
    async def main() -> None:
        outside = RemoteNameServer()
        harness = RegistrarHarness(outside)
        harness.registrar.start()
        await outside.next()
        await asyncio.sleep(0)
        outside.peers[0].close()
        assert await outside.next_topics() == set(harness.topics)
        assert len(outside.peers) == 2
        await harness.registrar.stop()

    run(main())


def test_failures_are_logged_once_and_missed_changes_are_sent_later(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        outside = RemoteNameServer()
        outside.down = True
        harness = RegistrarHarness(outside)
        with caplog.at_level(logging.INFO, "firearrow.registration"):
            harness.registrar.start()
            for _ in range(5):
                assert await asyncio.wait_for(outside.tried.get(), WAIT_S) == OTHER
            harness.topics.create("N1", 4)
            outside.down = False
            assert "N1" in await outside.next_topics()
            harness.topics.create("N2", 4)
            assert await outside.next_topics() == {"N2"}
        await harness.registrar.stop()
        levels = [record.levelname for record in caplog.records]
        assert levels == ["WARNING", "INFO"]

    run(main())


def test_a_refusal_is_no_registration(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        refusals = 2

        def answers(request: RemotingCommand) -> RemotingCommand:
            nonlocal refusals
            refusals -= 1
            return request.answer(1, "register broker failed") if refusals >= 0 else request.answer()

        outside = RemoteNameServer(answers)
        harness = RegistrarHarness(outside)
        harness.registrar.start()
        for _ in range(3):
            assert await outside.next_topics() == set(harness.topics)
        await harness.registrar.stop()
        assert [record.message for record in caplog.records if record.levelname == "WARNING"] == [
            "cannot register with name server 192.0.2.1:9876, will try again: "
            "it refused with code 1: register broker failed"
        ]

    run(main())


def test_topics_that_change_while_a_response_is_pending_are_sent_next() -> None:
    async def main() -> None:
        made: list[str] = []

        def answers(request: RemotingCommand) -> RemotingCommand:
            if not made:
                made.append("N1")
                harness.topics.create("N1", 4)
            return request.answer()

        outside = RemoteNameServer(answers)
        harness = RegistrarHarness(outside)
        harness.registrar.start()
        assert "N1" not in await outside.next_topics()
        assert await outside.next_topics() == {"N1"}
        await harness.registrar.stop()

    run(main())


def test_order_topics_are_marked_and_sent() -> None:
    async def main() -> None:
        outside = RemoteNameServer(
            lambda request: request.answer(body=b'{"table":{"N1":"own:4","stranger":"x:1"}}')
        )
        harness = RegistrarHarness(outside)
        harness.topics.create("N1", 4)
        harness.registrar.start()
        await outside.next()
        assert await outside.next_topics() == {"N1"}
        config = harness.topics.get("N1")
        assert config is not None
        assert config.order
        assert "stranger" not in harness.topics
        await harness.registrar.stop()

    run(main())


def test_a_malformed_response_stops_nothing() -> None:
    async def main() -> None:
        bodies = [b'{"table":3}', b"{", b""]
        outside = RemoteNameServer(lambda request: request.answer(body=bodies.pop(0) if bodies else b""))
        harness = RegistrarHarness(outside)
        harness.registrar.start()
        for _ in range(3):
            await outside.next()
        harness.topics.create("N1", 4)
        assert await outside.next_topics() == {"N1"}
        await harness.registrar.stop()

    run(main())


def test_the_own_name_server_is_updated_at_once_and_at_stop() -> None:
    async def main() -> None:
        own = NameServerHarness()
        harness = RegistrarHarness(None, own)
        harness.registrar.start()
        assert set(own.routes.topics) == set(harness.topics)
        harness.topics.create("N1", 4)
        route = own.route("N1")
        assert route is not None
        assert route["brokerDatas"][0]["brokerAddrs"] == {"0": "127.0.0.1:10911"}
        harness.topics.update(TopicConfig("N1", 6, 5, 4))
        route = own.route("N1")
        assert route is not None
        assert (route["queueDatas"][0]["readQueueNums"], route["queueDatas"][0]["perm"]) == (6, 4)
        await harness.registrar.stop()
        assert not own.routes.brokers

    run(main())


class ReportingDispatch:
    """The handlers of a name server; `next` returns the codes of the requests that they have answered."""

    def __init__(self, naming: NameServer) -> None:
        self._dispatch = Dispatch(naming.handlers())
        self._answered: asyncio.Queue[int] = asyncio.Queue()

    def __call__(self, request: RemotingCommand, peer: Peer) -> None:
        self._dispatch(request, peer)
        self._answered.put_nowait(request.code)

    async def next(self) -> int:
        return await asyncio.wait_for(self._answered.get(), WAIT_S)


def test_over_real_sockets() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        naming = NameServer(ManualClock(), NamingOptions(), lambda: None, no_connection)
        server = Server(loop, idle_s=120, frame_bytes_max=16 << 20)
        dispatch = ReportingDispatch(naming)
        address = await server.listen("127.0.0.1", 0, dispatch)
        server.start_serving()
        topics = TopicTable(ManualClock(), TopicSettings(cluster="C", broker="own"))
        registrar = Registrar(
            BrokerIdentity("C", "own", "", 10911),
            topics,
            permission=lambda: 6,
            own=None,
            others=addresses(f"localhost:{address[1]}"),
            connect=server.connect,
            period_ms=30_000,
        )
        topics.listen(registrar.changed)
        registrar.start()
        assert await dispatch.next() == RequestCode.REGISTER_BROKER
        assert set(naming.routes.topics) == set(topics)
        topics.create("N1", 4)
        assert await dispatch.next() == RequestCode.REGISTER_BROKER
        found = naming.routes.route("N1")
        assert found is not None
        assert found.brokers[0].addresses == {0: "127.0.0.1:10911"}
        await registrar.stop()
        goodbye = await dispatch.next()
        await server.close(1)
        assert goodbye == RequestCode.UNREGISTER_BROKER
        assert not naming.routes.brokers

    run(main())


def test_topics_missing_at_the_own_name_server_are_registered_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "PERIOD_S", (0.001, 0.001))

    async def main() -> None:
        own = NameServerHarness()
        harness = RegistrarHarness(None, own)
        harness.topics.create("N1", 4)
        harness.topics.create("N2", 4)
        registered_again = asyncio.Event()
        harness.registrar.start()
        register = own.routes.register

        def recording(registration: Registration, peer: Peer | None) -> BrokerLiveInfo | None:
            if "N1" in registration.topics:
                registered_again.set()
            return register(registration, peer)

        monkeypatch.setattr(own.routes, "register", recording)
        own.call(RequestCode.PUT_KV_CONFIG, namespace="ORDER_TOPIC_CONFIG", key="N2", value="own:4")
        own.call(RequestCode.DELETE_TOPIC_IN_NAMESRV, topic="N1")
        assert own.route("N1") is None
        await asyncio.wait_for(registered_again.wait(), WAIT_S)
        assert own.route("N1") is not None
        ordered = harness.topics.get("N2")
        assert ordered is not None
        assert ordered.order
        await harness.registrar.stop()

    run(main())
