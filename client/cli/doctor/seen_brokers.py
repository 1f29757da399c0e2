"""Brokers that the doctor saw at each name server: `~/.local/state/firearrow/brokers.json`, for its owner alone.

A name server forgets a broker that dies, and forgets all when it ends itself. With this file the doctor reports what
was there before. A broker that was not seen for KEPT_MS is dropped, and one that `--forget` names.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import orjson

FILE_BYTES_MAX = 1 << 20
NAME_SERVERS_MAX = 64
KEPT_MS = 7 * 86_400_000


class SeenBroker(NamedTuple):
    broker: str
    broker_id: int
    address: str
    seen_ms: int


class SeenBrokers:
    """`by_server`: name server → brokers that it knew. A file that cannot be read is like none."""

    def __init__(self) -> None:
        folder = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
        self.path = os.path.join(folder, "firearrow", "brokers.json")
        self._by_server: dict[str, list[SeenBroker]] = {}
        with suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
            with open(self.path, "rb") as file:
                found = orjson.loads(file.read(FILE_BYTES_MAX))
            for server, brokers in found["nameServers"].items():
                self._by_server[str(server)] = list(map(_seen, brokers))

    def at(self, name_servers: list[str], now_ms: int) -> Iterator[SeenBroker]:
        """Each once, as it was seen last."""
        latest: dict[tuple[str, int], SeenBroker] = {}
        for server in name_servers:
            for each in self._by_server.get(server, ()):
                known = latest.get((each.broker, each.broker_id))
                if each.seen_ms > now_ms - KEPT_MS and (known is None or known.seen_ms < each.seen_ms):
                    latest[each.broker, each.broker_id] = each
        yield from latest.values()

    def see(self, name_server: str, brokers: Mapping[str, Mapping[int, str]], now_ms: int) -> None:
        seen = [
            SeenBroker(name, number, at, now_ms)
            for name, ids in brokers.items()
            for number, at in ids.items()
        ]
        there = {each[:2] for each in seen}
        before = self._by_server.pop(name_server, [])
        kept = [each for each in before if each[:2] not in there and each.seen_ms > now_ms - KEPT_MS]
        self._by_server[name_server] = seen + kept

    def forget(self, broker: str) -> int:
        """How many entries that were."""
        count = 0
        for server, brokers in self._by_server.items():
            kept = [each for each in brokers if each.broker != broker]
            count += len(brokers) - len(kept)
            self._by_server[server] = kept
        return count

    def save(self) -> None:
        """Replace the file. OSError."""
        for server in list(self._by_server)[:-NAME_SERVERS_MAX]:
            del self._by_server[server]
        text = orjson.dumps(
            {"nameServers": {name: list(map(list, seen)) for name, seen in self._by_server.items()}}
        )
        new = f"{self.path}.{os.getpid()}"
        os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
        with os.fdopen(
            os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "wb"
        ) as file:
            file.write(text)
        os.rename(new, self.path)


def _seen(entry: Any) -> SeenBroker:  # noqa: ANN401
    """ValueError, TypeError: it is no entry."""
    broker, number, address, seen_ms = entry
    return SeenBroker(str(broker), int(number), str(address), int(seen_ms))
