from collections.abc import Mapping
from typing import final

BROKER_OWN: frozenset[str]
"""Names of properties that brokers set themselves, or that would act again: delays, timers, transactions, POP."""
REPLAY_JOB: str
REPLAY_BROKER: str
REPLAY_TOPIC: str
REPLAY_QUEUE: str
REPLAY_OFFSET: str

@final
class PropertyEdits:
    """What is done to the properties of every record: `drop` leaves out by name, `put` comes behind what is left.

    `provenance` (name of the job, broker that the records come from) puts the REPLAY_* properties with the record's own
    topic, queue and queue offset in place of older ones. Picklable. ValueError: a name is empty, or a text has a byte
    1 or 2, or there is too much to put.
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
