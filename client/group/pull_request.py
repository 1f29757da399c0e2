"""PullRequest: what one queue asks the broker for next. There is exactly one for each ProcessQueue. Event loop only."""

from dataclasses import dataclass

from firearrow.client.base.message import MessageQueue
from firearrow.client.group.process_queue import ProcessQueue


@dataclass(slots=True, eq=False)
class PullRequest:
    queue: MessageQueue
    process_queue: ProcessQueue
    next_offset: int
    previously_locked: bool = False
    """In order only: the start was asked for again since the queue was locked."""
    failures: int = 0
    """Pulls that failed since the last that did not."""
