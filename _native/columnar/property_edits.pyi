from collections.abc import Mapping
from typing import final

BROKER_OWN: frozenset[str]
"""Names of properties that brokers set, or that would take effect again: delays, timers, transactions, POP."""
REPLAY_JOB: str
REPLAY_BROKER: str
REPLAY_TOPIC: str
REPLAY_QUEUE: str
REPLAY_OFFSET: str

@final
class PropertyEdits:
    """Edits the properties of every record: drops the names in `drop`, appends `put` to the others.

    `provenance` (name of the job, broker of the records) replaces the REPLAY_* properties; they hold the record's
    own topic, queue and queue offset. Picklable.

    ValueError: a name is empty, a string has a byte 1 or 2, or `put` is too long.
    """

    drop: frozenset[str]
    put: Mapping[str, str]
    provenance: tuple[str, str] | None
    def __init__(
        self,
        drop: frozenset[str] = ...,
        put: Mapping[str, str] | None = None,
        provenance: tuple[str, str] | None = None,
    ) -> None: ...
