"""RocketMQ: producers and consumers that live as long as a FastAPI application, and the readiness they report.

    rocketmq = RocketMQ(producer=lambda: Producer("shop"), consumers=[worker])
    app = FastAPI(lifespan=rocketmq.lifespan)
    app.include_router(rocketmq.router)

    @app.post("/orders/{article}")
    async def order(article: str, producer: Annotated[Producer, Depends(rocketmq.producer)]): ...

Functions make producers and consumers, since each can be started once, and tests start an application often.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

try:
    from fastapi import APIRouter, FastAPI, Response
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "fastapi is missing: pip install 'firearrow[fastapi]'", name="fastapi"
    ) from error

from firearrow.client.base.errors import ConfigError, NotRunning
from firearrow.client.public import PopConsumer, Producer, PullConsumer, PushConsumer

__all__ = ["RocketMQ"]


def __dir__() -> list[str]:
    return sorted(__all__)


AnyConsumer = PushConsumer | PullConsumer | PopConsumer
Lifespan = Callable[[Any], AbstractAsyncContextManager[Any]]
"""Of a FastAPI or Starlette application."""
NOT_READY = 503


class RocketMQ:
    """`producer` and `consumers` are functions without arguments that make objects which are not started.

    The producer starts first and closes last, so that handlers can send until they have ended. `ready_path` is the
    path of `router`'s one route.
    """

    def __init__(
        self,
        *,
        producer: Callable[[], Producer] | None = None,
        consumers: Sequence[Callable[[], AnyConsumer]] = (),
        ready_path: str = "/readyz",
    ) -> None:
        self._make_producer = producer
        self._make_consumers = tuple(consumers)
        self._producer: Producer | None = None
        self._consumers: list[AnyConsumer] = []
        self.router = APIRouter()
        self.router.add_api_route(ready_path, self._readyz, methods=["GET"], include_in_schema=False)

    @asynccontextmanager
    async def lifespan(self, app: FastAPI) -> AsyncIterator[None]:
        """Start what the functions make, and close it: running handlers get `drain_s`, sends in flight as well.

        An error of a start ends the start of the application.
        """
        if self._producer is not None or self._consumers:
            raise ConfigError("this RocketMQ runs already: each application needs one of its own")
        async with AsyncExitStack() as running:
            running.callback(self._forget)
            if self._make_producer is not None:
                self._producer = await running.enter_async_context(self._make_producer())
            for make in self._make_consumers:
                self._consumers.append(await running.enter_async_context(make()))
            yield

    def around(self, lifespan: Lifespan) -> Lifespan:
        """A lifespan of which your own is the inner part: it finds producer and consumers running."""

        @asynccontextmanager
        async def both(app: FastAPI) -> AsyncIterator[Any]:
            async with self.lifespan(app), lifespan(app) as state:
                yield state

        return both

    def producer(self) -> Producer:
        """The running producer: `Depends(rocketmq.producer)`. NotRunning: outside of the lifespan, or there is none."""
        if self._producer is None:
            raise NotRunning("there is no producer: give RocketMQ one, and its lifespan to the application")
        return self._producer

    def consumers(self) -> tuple[AnyConsumer, ...]:
        """The running consumers, in the order of the functions."""
        return tuple(self._consumers)

    def readiness(self) -> dict[str, str]:
        """What is wrong, by `producer GROUP` and `consumer GROUP`; empty: all are ready. Nothing is requested.

        Ready is what runs, is not paused, and has a connection to a broker, or has not lost any.
        """
        services: list[tuple[str, Producer | AnyConsumer]] = [("consumer", each) for each in self._consumers]
        if self._producer is not None:
            services.insert(0, ("producer", self._producer))
        expected = len(self._make_consumers) + (self._make_producer is not None)
        wrong = {} if len(services) == expected else {"application": "it has not started, or it is closing"}
        for kind, service in services:
            health = service.health
            if not health.running:
                wrong[f"{kind} {service.group}"] = f"it is {health.state.in_words}"
            elif health.paused:
                wrong[f"{kind} {service.group}"] = "it is paused"
            elif health.down and not health.brokers:
                wrong[f"{kind} {service.group}"] = f"not reached: {', '.join(sorted(health.down))}"
        return wrong

    def _readyz(self, response: Response) -> dict[str, Any]:
        wrong = self.readiness()
        if wrong:
            response.status_code = NOT_READY
        return {"ready": not wrong, "wrong": wrong}

    def _forget(self) -> None:
        self._producer = None
        self._consumers.clear()
