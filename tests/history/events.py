"""The events of a history and the tail of a file that is still being written. Only reads; knows no broker.

Each line is a JSON object with `event`; times are nanoseconds since 1970.

    send       id topic crc size [copies=1] [kind=plain|delay|half] [fate=keep|drop]    before it is sent
    sent       id status queue offset                                                   the broker's response
    failed     id why                                                                   no response, or a refusal
    joined     group topic how=concurrent|orderly|exact|pop [shared=false]              a consumer was started
    got        group topic queue offset id crc size times ok at [popped]                before it is handled
    commit     group topic queue offset at                                              before the request
    committed  group topic queue offset at                                              acknowledged
    acked      group id at                                                              a popped message, acknowledged
    started killed stopped    at                                                        of the broker
    stored     topic queue offset id crc size                                           what the observer read
    ends       topic queue min max                                                      after all that it read
    offset     group topic queue offset before at                                       queried between the two
    done       what                                                                     a command was carried out
"""

import json
from pathlib import Path
from typing import Any

Event = dict[str, Any]
LINE_BYTES_MAX = 1 << 20


class EventFile:
    """One client's file; `news` returns what was written since its last call, whole lines only."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._position = 0

    def news(self) -> list[Event]:
        """ValueError, which names the file: a malformed line."""
        with self.path.open("rb") as file:
            file.seek(self._position)
            data = file.read()
        whole, _, rest = data.rpartition(b"\n")
        if len(rest) > LINE_BYTES_MAX:
            raise ValueError(f"{self.path}: a line of more than {LINE_BYTES_MAX} bytes")
        self._position += len(data) - len(rest)
        try:
            return [json.loads(line) for line in whole.split(b"\n") if line]
        except json.JSONDecodeError as error:
            raise ValueError(f"{self.path}: {error}") from error
