"""FailedLogins: slows down who guesses passwords, and logs failures once for each address and reason. Loop thread.

The answer to a failed login waits, longer with each failure of the address. While too many of an address wait, none of
its connections that has not logged in yet may try: more connections do not help. Connections that have logged in are
served as ever. A user that has logged in from the address before may log in on further connections, whatever others of
the address try under any name: then each connection gets one try until its answer is sent. So neither a guesser nor a
program with an old password locks out its neighbours. Who shares the address of a user guesses as fast as it connects.

IPv6 addresses of one network of 64 bits count as one.
"""

import logging
import math
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Protocol

from firearrow.broker.base.peer import counted_address

log = logging.getLogger("firearrow.auth")

FREE = 3
"""Failures without a delay: people mistype."""
DELAY_FIRST_S, DELAY_MAX_S = 0.1, 2.0
WAITING_MAX = 16
"""Failed logins of an address whose answers wait; then its others are not tried."""
TOO_MANY = "too many failed logins from {}: try again in {:.1f} s"
ADDRESSES_MAX = 10_000
"""Addresses that are remembered; the one that failed first is forgotten."""
LOGINS_MAX = 10_000
"""Users with addresses from which they logged in that are remembered; the one that logged in first is forgotten."""
FORGET_S = 300.0
LOG_PERIOD_S = 60.0
USER_CHARS_SHOWN = 64


class Watcher(Protocol):
    """A connection of HTTP."""

    @property
    def host(self) -> str: ...


class _Address:
    __slots__ = ("failures", "last_s", "tried", "waiting")

    def __init__(self) -> None:
        self.failures = 0
        self.last_s = -math.inf
        self.waiting: deque[tuple[float, object]] = deque()
        """When the answers that wait are sent, the first one first, and their connections."""
        self.tried: dict[object, float] = {}
        """Connection → when the last of its answers is sent."""

    def wait(self, until: float, connection: object) -> None:
        self.waiting.append((until, connection))
        self.tried[connection] = until

    def drop_sent(self, now: float) -> None:
        while self.waiting and self.waiting[0][0] <= now:
            _, connection = self.waiting.popleft()
            if self.tried.get(connection, math.inf) <= now:
                del self.tried[connection]


class FailedLogins:
    """`now()`: monotonic time in s."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._addresses: OrderedDict[str, _Address] = OrderedDict()
        self._logged: OrderedDict[tuple[str, str], list[float]] = OrderedDict()
        self._good: OrderedDict[tuple[str, str], None] = OrderedDict()
        self.total = 0

    def succeeded(self, address: str, user: str) -> None:
        """The user logged in from the address."""
        key = (counted_address(address), user)
        self._good[key] = None
        self._good.move_to_end(key)
        if len(self._good) > LOGINS_MAX:
            self._good.popitem(last=False)

    def wait_s(self, address: str, user: str, connection: object) -> float:
        """How long the user may not try to log in from the address on this connection; 0: now."""
        host = counted_address(address)
        found = self._addresses.get(host)
        if found is None or not found.waiting:
            return 0.0
        now = self._now()
        found.drop_sent(now)
        if len(found.waiting) < WAITING_MAX or ((host, user) in self._good and connection not in found.tried):
            return 0.0
        return found.waiting[0][0] - now

    def failed(self, address: str, reason: str, user: str, connection: object) -> float:
        """Note a failed login; returns how long its answer waits, in s. `reason` is one of few texts, `user` what the
        peer calls itself."""
        self.note(address, reason, user)
        now, address = self._now(), counted_address(address)
        found = self._addresses.pop(address, None)
        if found is None or now - found.last_s > FORGET_S:
            found = _Address()
        self._addresses[address] = found
        if len(self._addresses) > ADDRESSES_MAX:
            self._addresses.popitem(last=False)
        found.failures += 1
        found.last_s = now
        if found.failures <= FREE:
            return 0.0
        delay = min(DELAY_FIRST_S * 2.0 ** min(found.failures - FREE - 1, 16), DELAY_MAX_S)
        found.drop_sent(now)
        found.wait(now + delay, connection)
        return delay

    def note(self, address: str, reason: str, user: str = "") -> None:
        """Count a refusal; log the first one of an address and reason, and then their number once a minute."""
        self.total += 1
        now = self._now()
        counted = counted_address(address)
        key = (counted, reason)
        entry = self._logged.get(key)
        if entry is None:
            self._logged[key] = [now, 0.0]
            if len(self._logged) > ADDRESSES_MAX:
                self._logged.popitem(last=False)
            return _warn(address, reason, f" (user {user[:USER_CHARS_SHOWN]!r})" if user else "")
        entry[1] += 1
        if now - entry[0] >= LOG_PERIOD_S:
            _warn(counted, reason, f" ({int(entry[1])} times more)")
            entry[0], entry[1] = now, 0.0
        return None


def _warn(address: str, reason: str, more: str) -> None:
    log.warning("refused %s: %s%s", address, reason, more)
