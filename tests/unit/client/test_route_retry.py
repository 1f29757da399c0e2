"""Topics without a route: requested soon, then at growing intervals, and no more once they are found."""

from firearrow.client.base.errors import NoRoute
from firearrow.client.remoting.route_retry import RouteRetry


class Routes:
    """Knows `there`; records which topics are requested."""

    def __init__(self) -> None:
        self.there: set[str] = set()
        self.found: set[str] = set()
        self.asked: list[str] = []

    def known(self, topic: str) -> str | None:
        return topic if topic in self.found else None

    async def refresh(self, topic: str) -> bool:
        self.asked.append(topic)
        if topic not in self.there:
            raise NoRoute(topic)
        self.found.add(topic)
        return True


async def test_waits_grow_and_end_with_the_route() -> None:
    routes, now = Routes(), [0.0]
    called_at: list[float] = []

    async def found() -> None:
        called_at.append(now[0])

    missing = RouteRetry(
        routes,  # type: ignore[arg-type]
        lambda: ["a", "b"],
        found,
        lambda: now[0],
        8,
    )
    routes.there.add("b")
    times = []
    for second in range(40):
        now[0] = float(second)
        before = routes.asked.count("a")
        await missing.refresh_missing()
        if routes.asked.count("a") > before:
            times.append(second)
    assert times == [0, 1, 2, 4, 8, 16, 24, 32]
    assert routes.asked.count("b") == 1
    assert called_at == [0.0]
    routes.there.add("a")
    now[0] = 47.0
    await missing.refresh_missing()
    assert called_at == [0.0, 47.0]


async def test_a_route_that_others_found_counts_once() -> None:
    """A rebalance that requests the route itself sends no heartbeat: without one, the broker knows no member."""
    routes, topics, calls = Routes(), ["a", "b"], [0]

    async def found() -> None:
        calls[0] += 1

    missing = RouteRetry(
        routes,  # type: ignore[arg-type]
        lambda: topics,
        found,
        lambda: 0.0,
        8,
    )
    await missing.refresh_missing()
    routes.found.add("a")
    await missing.refresh_missing()
    await missing.refresh_missing()
    assert calls == [1]
    topics.remove("b")
    routes.found.add("b")
    await missing.refresh_missing()
    assert calls == [1], "no consumer wants it any more"
