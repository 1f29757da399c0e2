"""Health: `grpc.health.v1.Health`, by which Kubernetes and balancers ask whether the broker serves. Loop thread.

A broker serves when `/readyz` states that it is ready; all services have that status, and so has the empty name.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from functools import partial

from firearrow.broker.grpc import messages
from firearrow.broker.grpc.messages import ProtoMessage
from firearrow.broker.grpc.service_call import NOT_FOUND, RESOURCE_EXHAUSTED, ServiceCall, ServiceMethod

SERVING, NOT_SERVING, SERVICE_UNKNOWN = 1, 2, 3
LOOK_S = 1.0
WATCHES_MAX = 1000
"""Of all connections."""


class Health:
    """`unready()` states why the broker does not serve; None: it does. `names`: of the services."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        unready: Callable[[], Awaitable[str | None]],
        names: Collection[str],
    ) -> None:
        self._loop = loop
        self._unready = unready
        self._names = {"", *names}
        self._watches: dict[ServiceCall, int] = {}
        """What each got last."""
        self._watcher: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def methods(self) -> dict[str, ServiceMethod]:
        """By their paths."""
        handles = {"Check": self._check, "Watch": self._watch, "List": self._list}
        return {
            f"/{messages.HEALTH}/{name}": ServiceMethod(
                handle, *messages.method_classes(name, messages.HEALTH)
            )
            for name, handle in handles.items()
        }

    def stop(self) -> None:
        """The broker stops serving."""
        for task in (self._watcher, *self._tasks):
            if task is not None:
                task.cancel()
        for call in self._watches:
            call.send(call.response(status=NOT_SERVING))
        self._watches.clear()

    async def _status(self) -> int:
        return SERVING if await self._unready() is None else NOT_SERVING

    def _answer(self, answer: Callable[[int], None]) -> None:
        """Call it with the status, which may wait for the disk."""

        async def run() -> None:
            answer(await self._status())

        task = self._loop.create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _check(self, call: ServiceCall, request: ProtoMessage) -> None:
        if request.service not in self._names:
            return call.stream.finish(NOT_FOUND, f"unknown service {request.service[:80]!r}")
        return self._answer(lambda status: call.finish(call.response(status=status)))

    def _list(self, call: ServiceCall, request: ProtoMessage) -> None:
        def answer(status: int) -> None:
            response = call.response()
            for name in sorted(self._names):
                response.statuses[name].status = status
            call.finish(response)

        self._answer(answer)

    def _watch(self, call: ServiceCall, request: ProtoMessage) -> None:
        if len(self._watches) >= WATCHES_MAX:
            return call.stream.finish(RESOURCE_EXHAUSTED, f"{WATCHES_MAX} clients watch the health already")
        call.ended = partial(self._ended, call)
        if request.service not in self._names:
            return call.send(call.response(status=SERVICE_UNKNOWN))
        self._watches[call] = 0
        self._answer(lambda status: self._note(call, status))
        if self._watcher is None or self._watcher.done():
            self._watcher = self._loop.create_task(self._look())
        return None

    def _ended(self, call: ServiceCall) -> None:
        self._watches.pop(call, None)

    def _note(self, call: ServiceCall, status: int) -> None:
        """A client that reads too slowly gets the newest status later."""
        if self._watches.get(call, status) != status and not call.stream.is_slow:
            self._watches[call] = status
            call.send(call.response(status=status))

    async def _look(self) -> None:
        while self._watches:
            await asyncio.sleep(LOOK_S)
            status = await self._status()
            for call in list(self._watches):
                self._note(call, status)
