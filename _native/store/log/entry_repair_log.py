"""Strays: queue entries that readers met and that lead to no good record, each told once. Knows no file.

Owner: dispatch. Thread: the appender's; `drain` any.
"""

LINES_MAX = 100
SEEN_MAX = 10_000
"""Past it, no record is looked for."""

Place = tuple[str, int, int]
"""Topic, queue, entry."""


class EntryRepairs:
    def __init__(self) -> None:
        self._lines: list[str] = []
        self._met: set[Place] = set()

    def is_new(self, place: Place) -> bool:
        """Whether its record is to be looked for."""
        return place not in self._met and len(self._met) < SEEN_MAX

    def record_repaired(self, place: Place, physical_offset: int) -> None:
        self._record(place, f"it is put right, the record is at {physical_offset}")

    def record_skipped(self, place: Place) -> None:
        self._met.add(place)
        self._record(
            place,
            "it is passed over; the next start builds the queue again, as `firearrow store repair` does",
        )

    def drain(self) -> list[str]:
        """What was met since the last call, a line each."""
        taken, self._lines = self._lines, []
        return taken

    def _record(self, place: Place, what: str) -> None:
        topic, queue_id, entry = place
        if len(self._lines) < LINES_MAX:
            self._lines.append(
                f"entry {entry} of queue {queue_id} of {topic} leads to no good record: {what}"
            )
