"""EntryRepairs: queue entries that point to no valid record, each reported once. Touches no file.

Owner: Dispatch. Thread: the appender's; `drain` any.
"""

LINES_MAX = 100
SEEN_MAX = 10_000
"""After this many entries, no further records are searched for."""

Entry = tuple[str, int, int]
"""Topic, queue id, queue offset."""


class EntryRepairs:
    def __init__(self) -> None:
        self._lines: list[str] = []
        self._seen: set[Entry] = set()

    def is_new(self, entry: Entry) -> bool:
        """Whether its record should be searched for."""
        return entry not in self._seen and len(self._seen) < SEEN_MAX

    def record_repaired(self, entry: Entry, physical_offset: int) -> None:
        self._record(entry, f"repaired, the record is at {physical_offset}")

    def record_skipped(self, entry: Entry) -> None:
        self._seen.add(entry)
        self._record(entry, "skipped; the next start rebuilds the queue, as `firearrow store repair` does")

    def drain(self) -> list[str]:
        """A line for each entry found since the last call."""
        taken, self._lines = self._lines, []
        return taken

    def _record(self, entry: Entry, outcome: str) -> None:
        topic, queue_id, queue_offset = entry
        if len(self._lines) < LINES_MAX:
            self._lines.append(
                f"entry {queue_offset} of queue {queue_id} of {topic} points to no valid record: {outcome}"
            )
