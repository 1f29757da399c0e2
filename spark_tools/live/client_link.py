"""SharedAdmin: one Admin for all readers and senders of a process that use the same Cluster.

The Admin runs in the client's loop thread. An unused one stays open for the next task, since Spark reuses
workers. Requests are retried while no broker answers. Any thread.
"""

import asyncio
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, ClassVar, TypeVar

from firearrow._native.wire.codes import ResponseCode
from firearrow.client.admin_api.admin import Admin
from firearrow.client.base.errors import BrokerError, NoNameServer, TooManyRequests, TransportError
from firearrow.client.remoting.client_instance import ClientInstance
from firearrow.client.threads.loop_thread import LoopThread
from firearrow.spark_tools.base.errors import Unreachable
from firearrow.spark_tools.live.cluster import Cluster

T = TypeVar("T")

IDLE_MAX = 4
PAUSE_S, PAUSE_MAX_S = 0.05, 2.0
BUSY = frozenset(
    {
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.FLOW_CONTROL,
    }
)
"""Response codes of a broker that is overloaded or shutting down; retried."""
TRANSIENT = (TransportError, TooManyRequests, NoNameServer)


class SharedAdmin:
    """Reference-counted: each `acquire` needs a `release`."""

    _making: ClassVar[threading.Lock] = threading.Lock()
    _idle: ClassVar[OrderedDict[Cluster, "SharedAdmin"]] = OrderedDict()

    @classmethod
    def acquire(cls, cluster: Cluster) -> "SharedAdmin":
        """An open one, or a new one; sends no request yet."""
        with cls._making:
            found = cls._idle.get(cluster)
            if found is None or found.thread is not LoopThread.current():
                found = cls._idle[cluster] = cls(cluster)
            cls._idle.move_to_end(cluster)
            found._users += 1
            return found

    def release(self) -> None:
        with self._making:
            self._users -= 1
            unused = [link for link in self._idle.values() if not link._users]
            closing = unused[: max(0, len(unused) - IDLE_MAX)]
            for link in closing:
                del self._idle[link.cluster]
        for link in closing:
            link._close()

    @classmethod
    def forked(cls) -> None:
        """After a fork, in the child: start without the parent's connections and with a new lock."""
        cls._making, cls._idle = threading.Lock(), OrderedDict()

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.thread = LoopThread.current()
        self._users = 0
        self.options = cluster.options()
        self.admin = self.thread.call(lambda: Admin(client=self.options))
        self.instance = self.thread.run(self._start)
        """Use it in the loop's thread only, except for what never changes."""

    def _close(self) -> None:
        if self.thread is LoopThread.current():
            self.thread.run(self.admin.close)

    async def _start(self) -> ClientInstance:
        await self.admin.start()
        return self.admin.calls.instance

    def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run `work` in the loop thread and wait for the result."""
        return self.thread.run(work)

    def ask(self, question: Callable[[Admin], Awaitable[T]], wait_s: float) -> T:
        """Call the Admin, and retry while no broker answers. Unreachable after `wait_s`; other
        ClientErrors."""

        async def asking() -> T:
            return await retry_until(lambda: question(self.admin), wait_s, str(self.cluster))

        return self.thread.run(asking)


async def retry_until(
    work: Callable[[], Awaitable[T]],
    wait_s: float,
    peer_name: str,
    *,
    before_again: Callable[[], Awaitable[object]] | None = None,
) -> T:
    """Retry `work` while no broker answers or the broker is busy. Unreachable after `wait_s`."""
    loop = asyncio.get_running_loop()
    deadline, pause_s = loop.time() + wait_s, PAUSE_S
    while True:
        try:
            return await work()
        except (*TRANSIENT, BrokerError) as error:
            if isinstance(error, BrokerError) and error.code not in BUSY:
                raise
            if loop.time() + pause_s > deadline:
                raise Unreachable(f"{peer_name}: no answer within {wait_s:g} s: {error}") from error
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, PAUSE_MAX_S)
        if before_again is not None:
            await before_again()


class RetryDeadline:
    """Limits the time spent on retries, from the first `wait` to `renew`."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._until: float | None = None
        self._pause_s = PAUSE_S

    def renew(self) -> None:
        self._until, self._pause_s = None, PAUSE_S

    def wait(self) -> bool:
        """Sleep before the next retry, each time longer. False: the time is up."""
        now = time.monotonic()
        if self._until is None:
            self._until = now + self._seconds
        if now + self._pause_s > self._until:
            return False
        time.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, PAUSE_MAX_S)
        return True


os.register_at_fork(after_in_child=SharedAdmin.forked)
