"""RouteRetry: requests missing routes again, soon at first and then less often.

Java's client retries each 30 s only, so a new group waits half a minute for its first retry message. Event
loop only.
"""

from collections.abc import Awaitable, Callable, Iterable

from firearrow.client.base.errors import ClientError
from firearrow.client.remoting.routes import RouteTable

RETRY_S = 0.5
WAIT_MAX_S = 1.0
"""A consumer that started before its broker consumes at most 2 s after the broker is there: the rebalance may wait for
one more second."""
RENEW_WAIT_MAX_S = 1.0
RENEW_FOR_S = 10.0
"""Longest time between two requests for a route that names a broker which was not reached, and until how long after."""


class RouteRetry:
    """`wait_max_s`: longest time between two requests for one topic; `found` is called when a missing route
    was found, also by others, such as a rebalance: it sends no heartbeats.
    """

    def __init__(
        self,
        routes: RouteTable,
        topics: Callable[[], Iterable[str]],
        found: Callable[[], Awaitable[None]],
        clock: Callable[[], float],
        wait_max_s: float,
    ) -> None:
        self._routes = routes
        self._topics = topics
        self._found = found
        self._clock = clock
        self._wait_max_s = wait_max_s
        self._next_try: dict[str, tuple[float, float]] = {}
        """Topic → time of the next request and the wait after it, seconds."""

    async def refresh_missing(self) -> None:
        """Request the missing routes that are due."""
        topics = list(self._topics())
        missing = [topic for topic in topics if self._routes.known(topic) is None]
        found = any(topic in self._next_try and topic not in missing for topic in topics)
        self._next_try = {topic: due for topic, due in self._next_try.items() if topic in missing}
        for topic in missing:
            next_s, wait_s = self._next_try.get(topic, (0.0, RETRY_S))
            if self._clock() < next_s:
                continue
            self._next_try[topic] = (self._clock() + wait_s, min(2 * wait_s, self._wait_max_s))
            try:
                await self._routes.refresh(topic)
            except ClientError:
                continue
            found = True
            del self._next_try[topic]
        if found:
            await self._found()
