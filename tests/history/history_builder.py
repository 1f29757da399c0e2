"""HistoryBuilder: builds a history event by event, for tests of the checker."""

from tests.history.checker import check
from tests.history.history import History

TOPIC, GROUP = "Plain", "g"


class HistoryBuilder:
    """Each method adds the event of its name; an event's time is its number."""

    def __init__(self) -> None:
        self.history = History()
        self._now = 0

    def event(self, what: str, source: str = "client", /, **members: object) -> "HistoryBuilder":
        self._now += 1
        self.history.add(source, {"event": what, "at": self._now, **members})
        return self

    def send(self, name: str, topic: str = TOPIC, **more: object) -> "HistoryBuilder":
        return self.event("send", id=name, topic=topic, crc=_crc(name), size=9, **more)

    def sent(self, name: str, offset: int, queue: int = 0, status: str = "SEND_OK") -> "HistoryBuilder":
        return self.event("sent", id=name, status=status, queue=queue, offset=offset)

    def failed(self, name: str) -> "HistoryBuilder":
        return self.event("failed", id=name, why="lost on the way")

    def acknowledged(self, *names: str, start: int = 0) -> "HistoryBuilder":
        """Sent, acknowledged and stored from `start` on, one after the other."""
        for offset, name in enumerate(names, start):
            self.send(name).sent(name, offset).stored(offset, name)
        return self

    def stored(
        self, offset: int, name: str, queue: int = 0, topic: str = TOPIC, crc: int = 0
    ) -> "HistoryBuilder":
        """`crc`: of another body than was sent."""
        return self.event(
            "stored",
            "observer",
            topic=topic,
            queue=queue,
            offset=offset,
            id=name,
            crc=crc or _crc(name),
            size=9,
        )

    def ends(self, end: int, first: int = 0, queue: int = 0, topic: str = TOPIC) -> "HistoryBuilder":
        return self.event("ends", "observer", topic=topic, queue=queue, min=first, max=end)

    def joined(self, how: str = "concurrent", group: str = GROUP, shared: bool = False) -> "HistoryBuilder":
        return self.event("joined", group=group, topic=TOPIC, how=how, shared=shared)

    def got(
        self,
        offset: int,
        name: str,
        *,
        times: int = 0,
        ok: bool = True,
        group: str = GROUP,
        crc: int = 0,
        popped: int = 0,
    ) -> "HistoryBuilder":
        return self.event(
            "got",
            group=group,
            topic=TOPIC,
            queue=0,
            offset=offset,
            id=name,
            crc=crc or _crc(name),
            size=9,
            times=times,
            ok=ok,
            popped=popped,
        )

    def commit(self, offset: int) -> "HistoryBuilder":
        return self.event("commit", group=GROUP, topic=TOPIC, queue=0, offset=offset)

    def committed(self, offset: int) -> "HistoryBuilder":
        return self.event("committed", group=GROUP, topic=TOPIC, queue=0, offset=offset)

    def offset(self, offset: int) -> "HistoryBuilder":
        """The group's offset that the observer read."""
        self._now += 1
        return self.event(
            "offset", "observer", group=GROUP, topic=TOPIC, queue=0, offset=offset, before=self._now
        )

    def acked(self, name: str) -> "HistoryBuilder":
        return self.event("acked", group=GROUP, id=name)

    def rules(self, settled: bool = True) -> set[str]:
        """The names of the rules that it violates."""
        return {violation.rule for violation in check(self.history, settled)}

    @property
    def now(self) -> int:
        return self._now


def _crc(name: str) -> int:
    return 1 + sum(name.encode())
