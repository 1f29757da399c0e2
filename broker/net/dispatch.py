"""Dispatch: calls the handler of a request code and turns its result or error into an answer. Loop thread."""

import asyncio
import contextlib
import functools
import inspect
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Protocol

from firearrow._native.wire.codes import ResponseCode
from firearrow._native.wire.command import FieldError, RemotingCommand
from firearrow.broker.base.errors import Refusal
from firearrow.broker.base.memory_limits import REQUEST_BYTES_MAX
from firearrow.broker.base.peer import Check, Handler, HeldAccess, Peer, Routes
from firearrow.broker.net.refusals import RefusalLog

log = logging.getLogger("firearrow.dispatch")

RUNNING_MAX = 10_000
"""Requests in progress; above it, or above `running_bytes_max` of their bodies, further ones get SYSTEM_BUSY."""

WAITING_MAX = 5_000
"""Of them, those that wait for their quota; above it, further ones are refused."""

Instead = Callable[[RemotingCommand, Peer], RemotingCommand | None]
"""Another answer to a request that `check` has refused; None: there is none."""


class Admission(Protocol):
    """`admit`: seconds that the request has to wait before it is asked about again, 0: it is handled now; its last
    argument states how long it has waited. Refusal. `active`: whether anything has to be asked about."""

    active: bool

    def admit(self, request: RemotingCommand, peer: Peer, waited_s: float) -> float: ...


class Dispatch:
    """A table of handlers. Each listener has one: the VIP port serves fewer codes. `refusals` gets each refused
    request. `check` is called before each request, and raises a Refusal for what may not be done; its last argument
    states whether there is a handler; `instead` has the codes whose refused requests get another answer. `admission` is
    asked next, and may delay it; then `held_access` is asked whether it may still be served."""

    def __init__(
        self,
        routes: Iterable[Routes] = (),
        refusals: RefusalLog | None = None,
        check: Check | None = None,
        admission: Admission | None = None,
        held_access: HeldAccess | None = None,
        instead: Mapping[int, Instead] | None = None,
    ) -> None:
        self._refusals = refusals
        self._held_access = held_access or HeldAccess()
        self.check = check
        self._instead = instead or {}
        self._handlers: dict[int, Handler] = {}
        self._running: set[asyncio.Future[RemotingCommand | None]] = set()
        self._running_bytes = 0
        self.running_bytes_max = REQUEST_BYTES_MAX
        self.admission = admission
        self._waiting = 0
        self._draining = asyncio.Event()
        self.add(routes)

    def add(self, routes: Iterable[Routes], without: Collection[int] = ()) -> None:
        """Serve these codes as well, except those in `without`. ValueError when a code has a handler already."""
        for table in routes:
            for code, handler in table.items():
                if code in self._handlers:
                    raise ValueError(f"two handlers for request code {code}")
                if code not in without:
                    self._handlers[int(code)] = handler

    @property
    def codes(self) -> frozenset[int]:
        """The request codes that have a handler."""
        return frozenset(self._handlers)

    def __call__(self, request: RemotingCommand, peer: Peer) -> None:
        handler = self._handlers.get(request.code)
        if self.check is not None:
            try:
                self.check(request, peer, handler is not None)
            except Exception as error:  # nothing is served that could not be checked
                return self._refuse(request, peer, error)
        if handler is None:
            refusal = Refusal(
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {request.code} not supported"
            )
            return self._answer(request, peer, self._refused(request, peer, refusal))
        try:
            wait_s = self._admit(request, peer)
            answer = self._wait(handler, request, peer, wait_s) if wait_s > 0 else handler(request, peer)
        except Exception as error:  # the peer gets an answer in any case
            answer = self._failed(request, peer, error)
        if answer is None or isinstance(answer, RemotingCommand):
            return self._answer(request, peer, answer)
        size = len(request.body)
        full = len(self._running) >= RUNNING_MAX or self._running_bytes + size > self.running_bytes_max
        if full and inspect.iscoroutine(answer):  # not started yet; a future's work is done, it only waits
            answer.close()
            return self._answer(request, peer, self._refused(request, peer, self._busy()))
        self._running_bytes += size
        future = asyncio.ensure_future(answer)
        self._running.add(future)
        future.add_done_callback(functools.partial(self._finish, request, peer, size))
        return None

    def _refuse(self, request: RemotingCommand, peer: Peer, error: Exception) -> None:
        answer = self._failed(request, peer, error)
        other = self._instead.get(request.code)
        if other is not None and isinstance(error, Refusal) and not error.passes:
            answer = other(request, peer) or answer
        if isinstance(error, Refusal) and error.delay_s > 0 and not request.is_oneway:
            # the request is not kept: its body may be large
            asyncio.get_running_loop().call_later(error.delay_s, peer.reply, answer)
        else:
            self._answer(request, peer, answer)

    def _admit(self, request: RemotingCommand, peer: Peer) -> float:
        if self.admission is None or not self.admission.active:
            return 0.0
        wait_s = self.admission.admit(request, peer, 0.0)
        if wait_s > 0 and self._waiting >= WAITING_MAX:
            peer.throttle(wait_s)  # so that it does not ask again and again
            raise self._busy()
        return wait_s

    async def _wait(
        self, handler: Handler, request: RemotingCommand, peer: Peer, wait_s: float
    ) -> RemotingCommand | None:
        """Handle the request once it is admitted, or once the broker stops. Refusal: users or rules have changed."""
        waited_s, generation = 0.0, self._held_access.generation
        self._waiting += 1
        try:
            while wait_s > 0 and not self._draining.is_set():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(wait_s):
                        await self._draining.wait()
                if peer.closed:
                    return None
                waited_s += wait_s
                wait_s = self.admission.admit(request, peer, waited_s) if self.admission else 0.0
        finally:
            self._waiting -= 1
        self._held_access.check(request, peer, generation)
        answer = handler(request, peer)
        return answer if answer is None or isinstance(answer, RemotingCommand) else await answer

    def _busy(self) -> Refusal:
        remark = (
            f"{len(self._running)} requests of {self._running_bytes} bytes are in progress: try again later"
        )
        return Refusal(ResponseCode.SYSTEM_BUSY, remark)

    @property
    def in_progress(self) -> int:
        """Requests whose handler is not done."""
        return len(self._running)

    async def drain(self) -> None:
        """Wait for the handlers that are still running."""
        self._draining.set()
        if self._running:
            await asyncio.gather(*self._running, return_exceptions=True)

    def _finish(
        self,
        request: RemotingCommand,
        peer: Peer,
        size: int,
        future: "asyncio.Future[RemotingCommand | None]",
    ) -> None:
        self._running.discard(future)
        self._running_bytes -= size
        if future.cancelled():
            return
        error = future.exception()
        if isinstance(error, Exception):
            self._answer(request, peer, self._failed(request, peer, error))
        elif error is None:
            self._answer(request, peer, future.result())

    def _answer(self, request: RemotingCommand, peer: Peer, answer: RemotingCommand | None) -> None:
        if answer is not None and not request.is_oneway:
            peer.reply(answer)

    def _failed(self, request: RemotingCommand, peer: Peer, error: Exception) -> RemotingCommand:
        if isinstance(error, Refusal):
            return self._refused(request, peer, error)
        if isinstance(error, FieldError):
            return self._refused(request, peer, Refusal(ResponseCode.SYSTEM_ERROR, str(error)))
        log.exception("request %d from %s:%d failed", request.code, *peer.remote)
        return request.answer(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")

    def _refused(self, request: RemotingCommand, peer: Peer, refusal: Refusal) -> RemotingCommand:
        if self._refusals is not None:
            self._refusals.note(request, peer, refusal.code)
        return request.answer(refusal.code, refusal.remark, refusal.ext)
