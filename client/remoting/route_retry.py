"""RouteRetry: topics that are wanted and have no route yet are asked for again soon, then ever more seldom.

Java's client asks each 30 s only, so that a new group waits half a minute for its first retry.
"""

from collections.abc import Awaitable, Callable, Iterable

from firearrow.client.base.errors import ClientError
from firearrow.client.remoting.routes import RouteTable

EACH_S = 1.0


class RouteRetry:
    """`wait_max_s` is the most between two questions for one topic; `found` is called when there was an answer."""

    def __init__(
        self,
        routes: RouteTable,
        wanted: Callable[[], Iterable[str]],
        found: Callable[[], Awaitable[None]],
        clock: Callable[[], float],
        wait_max_s: float,
    ) -> None:
        self._routes = routes
        self._wanted = wanted
        self._found = found
        self._clock = clock
        self._wait_max_s = wait_max_s
        self._asked: dict[str, tuple[float, float]] = {}

    async def look(self) -> None:
        """Ask for those whose time has come."""
        missing = [topic for topic in self._wanted() if self._routes.known(topic) is None]
        self._asked = {topic: asked for topic, asked in self._asked.items() if topic in missing}
        for topic in missing:
            next_s, wait_s = self._asked.get(topic, (0.0, EACH_S))
            if self._clock() < next_s:
                continue
            self._asked[topic] = (self._clock() + wait_s, min(2 * wait_s, self._wait_max_s))
            try:
                await self._routes.refresh(topic)
            except ClientError:
                continue
            await self._found()
