"""Health with a readiness that the test sets: what watchers get, and how many there may be."""

import asyncio
from collections.abc import Callable

import pytest

from firearrow.broker.grpc import health, messages
from firearrow.broker.grpc.health import NOT_SERVING, SERVICE_UNKNOWN, SERVING, WATCHES_MAX, Health
from firearrow.broker.grpc.service_call import RESOURCE_EXHAUSTED, ServiceCall
from tests.support.eventually import eventually_async

REQUEST, RESPONSE = messages.method_classes("Watch", messages.HEALTH)


class Stream:
    """What a ServiceCall uses of a GrpcStream."""

    message_bytes_max = 1 << 20
    is_slow = False
    is_open = True

    def __init__(self) -> None:
        self.sent: list[int] = []
        self.code = -1

    def send(self, data: bytes) -> None:
        self.sent.append(RESPONSE.FromString(data).status)

    def finish(self, status: int = 0, reason: str = "") -> None:
        self.code, self.is_open = status, False


class Watched:
    def __init__(self) -> None:
        self.unready: str | None = None
        self.health = Health(asyncio.get_running_loop(), self._unready, ["s"])
        self.method = self.health.methods()[f"/{messages.HEALTH}/Watch"]

    async def _unready(self) -> str | None:
        return self.unready

    def watch(self, service: str = "") -> tuple[ServiceCall, Stream]:
        stream = Stream()
        call = ServiceCall(self.method, stream)  # type: ignore[arg-type]
        call.message(REQUEST(service=service).SerializeToString())
        return call, stream


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "LOOK_S", 0.001)


async def gets(stream: Stream, *statuses: int) -> None:
    await eventually_async(lambda: stream.sent == [*statuses], what=lambda: stream.sent)


@pytest.mark.usefixtures("soon")
async def test_a_watcher_gets_each_change_once() -> None:
    watched = Watched()
    _, stream = watched.watch("s")
    _, unknown = watched.watch("no such service")
    await gets(stream, SERVING)
    watched.unready = "the disk is full"
    await gets(stream, SERVING, NOT_SERVING)
    watched.unready = None
    await gets(stream, SERVING, NOT_SERVING, SERVING)
    assert unknown.sent == [SERVICE_UNKNOWN]
    watched.health.stop()
    assert stream.sent[3:] == [NOT_SERVING]


@pytest.mark.usefixtures("soon")
async def test_a_slow_watcher_gets_the_newest_state_later() -> None:
    watched = Watched()
    _, stream = watched.watch()
    _, other = watched.watch()
    await gets(stream, SERVING)
    stream.is_slow, watched.unready = True, "no"
    await gets(other, SERVING, NOT_SERVING)
    assert stream.sent == [SERVING]
    stream.is_slow = False
    await gets(stream, SERVING, NOT_SERVING)
    watched.health.stop()


async def test_watches_are_bounded() -> None:
    watched = Watched()
    calls = [watched.watch() for _ in range(WATCHES_MAX)]
    assert {stream.code for _, stream in calls} == {-1}
    assert watched.watch()[1].code == RESOURCE_EXHAUSTED
    calls[0][0].cancelled()
    assert watched.watch()[1].code == -1
    watched.health.stop()


async def test_a_request_that_is_none_is_refused() -> None:
    watched = Watched()
    ends: list[Callable[[ServiceCall], None]] = [lambda call: call.message(b"\xff"), ServiceCall.half_closed]
    for end in ends:
        stream = Stream()
        end(ServiceCall(watched.method, stream))  # type: ignore[arg-type]
        assert stream.code == 13
    watched.health.stop()
