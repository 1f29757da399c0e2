"""StateLog: one line in the log when a state begins and one when it has ended, however often it is seen meanwhile.

A consumer that is slower than its messages come is full, and then not, many times a second; a broker fails some
requests, and answers others. So a state has ended only when it was not seen for QUIET_S. Event loop only.
"""

import logging
from collections.abc import Callable, Hashable

from firearrow.client.base.errors import (
    BrokerError,
    ConnectFailed,
    ConnectionLost,
    OffsetUnknown,
    RocketMQError,
)

QUIET_S, FAILING_S = 600.0, 60.0
"""For a slow consumer, and for requests that fail."""
KEYS_MAX = 1000


class StateLog:
    """States by key, such as a queue or a broker; `ended`: the line for the end of one, from its key and how often it
    was seen. `clock` is monotonic."""

    def __init__(
        self,
        log: logging.Logger,
        ended: str,
        clock: Callable[[], float],
        *,
        level: int = logging.INFO,
        quiet_s: float = QUIET_S,
    ) -> None:
        self._log = log
        self._ended = ended
        self._clock = clock
        self._level = level
        self._quiet_s = quiet_s
        self._seen: dict[Hashable, tuple[int, float]] = {}
        """How often each state was seen since it began, and when the last time was."""

    def failed(self, key: Hashable, error: Exception, text: str, *values: object) -> None:
        """A request failed. What ends when a server answers again is an info; that a server is not connected is logged
        once for all requests (ConnectionStates)."""
        reason = error.__cause__ if isinstance(error, OffsetUnknown) and error.__cause__ else error
        if isinstance(reason, ConnectFailed | ConnectionLost):
            self._log.debug(text, *values)
        else:
            waits = isinstance(reason, RocketMQError) and not isinstance(reason, BrokerError)
            self.is_there(key, text, *values, level=logging.INFO if waits else self._level)

    def is_there(self, key: Hashable, text: str, *values: object, level: int | None = None) -> None:
        """The state is there. `text` and `values` are the line if it has just begun."""
        self.is_absent(key)
        times, _ = self._seen.get(key, (0, 0.0))
        if not times:
            self._log.log(self._level if level is None else level, text, *values)
        if times or len(self._seen) < KEYS_MAX:
            self._seen[key] = times + 1, self._clock()

    def is_absent(self, key: Hashable) -> None:
        """The state is not there now: call it where it would be seen."""
        if not self._seen or key not in self._seen:
            return
        times, last_s = self._seen[key]
        if self._clock() - last_s >= self._quiet_s:
            del self._seen[key]
            self._log.info(self._ended, key, times)
