"""Values that differ between a recorded frame and ours: ports, physical offsets, message ids, times.

Learns from every send that both sides accepted, and from every record that both returned.
"""

import re
import time
from bisect import bisect_left
from collections.abc import Iterable

from firearrow._native.wire.command import RemotingCommand
from tests.golden import manifest
from tests.wire_golden.conversation import Event
from tests.wire_golden.pops import Pops

THEIR_BROKER, THEIR_NAME_SERVER = 20911, 19876
SENDS = {10: ("topic", "queueId"), 310: ("b", "e"), 320: ("b", "e"), 325: ("b", "e")}
MESSAGE_ID = re.compile(r"7F000002000051AF([0-9A-F]{16})")
LATER = re.compile(r"(?:^|\x02)(?:DELAY|TIMER_\w+|TRAN_MSG)\x01")
HALF = re.compile(r"(?:^|\x02)TRAN_MSG\x01true\x02")
DELIVER_MS = re.compile(r"(?<=TIMER_DELIVER_MS\x01)\d+")
UNIQUE_KEY = re.compile(r"UNIQ_KEY\x01([^\x02]+)")
TIME_FIELDS = {29: ("timestamp",), 12: ("beginTimestamp", "endTimestamp"), 222: ("timestamp",)}
OFFSET_FIELDS = ("queueOffset", "commitOffset")
POSITION_CODES = (33, 36)
END_TRANSACTION, COMMIT = 37, "8"
PULLS = (11, 361)
QUERY_OFFSET = 14
DELIVERED = frozenset(
    (
        "%RETRY%CG_RETRY",
        "%DLQ%CG_RETRY",
        "GoldenDelay",
        "GoldenTimer",
        "GoldenTx",
        "GoldenV4",
        "%RETRY%CG_V4",
        "SCHEDULE_TOPIC_XXXX",
    )
)
"""Topics to which our services deliver as Apache's do."""
LONG_MAX = (1 << 63) - 1

Queue = tuple[str, int]
Position = tuple[Queue, int]
"""A queue and an offset in it."""


class Translation:
    """`theirs` is a recorded value, the result is ours."""

    def __init__(self, broker_port: int, name_server_port: int) -> None:
        self._broker_port = broker_port
        self._name_server_port = name_server_port
        self._physical: dict[int, int] = {}
        self._halves: dict[int, int] = {}
        self._handles: dict[str, str] = {}
        self.pops = Pops()
        self._moments: list[tuple[int, int]] = []
        held, by_key = _manifest()
        self._finals = {key: position for (topic, key), position in by_key.items() if topic in DELIVERED}
        self._served = {queue for queue, _ in held if queue[0] in DELIVERED}

    def text(self, theirs: str) -> str:
        """Addresses and message ids."""
        text = theirs.replace(f"127.0.0.2:{THEIR_BROKER}", f"127.0.0.2:{self._broker_port}")
        text = text.replace(f"127.0.0.2:{THEIR_NAME_SERVER}", f"127.0.0.2:{self._name_server_port}")
        return MESSAGE_ID.sub(self._message_id, text)

    def _message_id(self, found: "re.Match[str]") -> str:
        return f"7F000002{self._broker_port:08X}{self.physical(int(found[1], 16)):016X}"

    def physical(self, theirs: int) -> int:
        return self._physical.get(theirs, theirs)

    def standing(self, request: RemotingCommand, answer: RemotingCommand | None) -> Position | None:
        """The queue of a pull, a send or a commit, if a service delivers to it, and how many messages it had
        then."""
        ends = request.code == END_TRANSACTION and request.ext["commitOrRollback"] == COMMIT
        if ends and request.ext["msgId"] in self._finals:
            queue, standing = self._finals[request.ext["msgId"]]
        elif answer is None:
            return None
        elif request.code in PULLS:
            queue = request.ext["topic"], int(request.ext["queueId"])
            standing = int(answer.ext["nextBeginOffset"])
        elif request.code in SENDS and not LATER.search(_properties(request)):
            queue = request.ext[SENDS[request.code][0]], int(answer.ext["queueId"])
            standing = int(answer.ext["queueOffset"])
        elif (
            request.code == QUERY_OFFSET and answer.ext.get("offset") == "0"
        ):  # reported for a queue that is not empty
            queue, standing = (request.ext["topic"], int(request.ext["queueId"])), 1
        else:
            return None
        return (queue, standing) if queue in self._served else None

    def moment(self, theirs_ms: int) -> int:
        """When we replayed what was recorded at that time; long before and after, the distance is kept."""
        if not self._moments or theirs_ms in (0, LONG_MAX):
            return theirs_ms
        at = bisect_left(self._moments, (theirs_ms, 0))
        then, now = self._moments[min(at, len(self._moments) - 1)]
        return now if 0 < at < len(self._moments) else now + theirs_ms - then

    def request(self, event: Event) -> RemotingCommand:
        """The request as we send it."""
        request = event.command
        ext = request.ext
        for field in TIME_FIELDS.get(request.code, ()):
            if int(ext[field]) > 0:
                ext[field] = str(self.moment(int(ext[field])))
        if request.code in POSITION_CODES:
            ext["offset"] = str(self.physical(int(ext["offset"])))
        if request.code == END_TRANSACTION:
            ext["commitLogOffset"] = str(self.physical(int(ext["commitLogOffset"])))
            ext["tranStateTableOffset"] = str(self._halves[int(ext["tranStateTableOffset"])])
        if "recallHandle" in ext:
            ext["recallHandle"] = self._handles.get(ext["recallHandle"], ext["recallHandle"])
        field = "properties" if request.code == 10 else "i"
        if request.code in SENDS and field in ext:
            ext[field] = DELIVER_MS.sub(
                lambda found: self._from_now(event, int(found[0])), _properties(request)
            )
        self.pops.ask(request, None if event.partner is None else event.partner.command)
        if "msgId" in ext:
            ext["msgId"] = self.text(ext["msgId"])
        return request

    @staticmethod
    def _from_now(event: Event, theirs_ms: int) -> str:
        """As long after this send as in the recording."""
        return str(time.time_ns() // 1_000_000 + theirs_ms - int(event.line["ts"]))

    def sent(self, event: Event) -> None:
        self._moments.append((int(event.line["ts"]), time.time_ns() // 1_000_000))

    def learn(self, request: Event, answer: Event, ours: RemotingCommand | None) -> None:
        self.pops.learn(answer.command, ours)
        if request.command.code in SENDS and ours is not None and "msgId" in ours.ext:
            theirs = MESSAGE_ID.findall(answer.command.ext.get("msgId", ""))
            self.learn_positions(zip([int(one, 16) for one in theirs], ids(ours.ext["msgId"]), strict=True))
            if "recallHandle" in ours.ext:
                self._handles[answer.command.ext.get("recallHandle", "")] = ours.ext["recallHandle"]
            if HALF.search(_properties(request.command)):
                self._halves[int(answer.command.ext["queueOffset"])] = int(ours.ext["queueOffset"])

    def learn_half(self, theirs: RemotingCommand, ours: RemotingCommand) -> None:
        """A check names the copy that it checks."""
        physical, half = "commitLogOffset", "tranStateTableOffset"
        self._physical[int(theirs.ext[physical])] = int(ours.ext[physical])
        self._halves[int(theirs.ext[half])] = int(ours.ext[half])

    def learn_positions(self, pairs: Iterable[tuple[int, int]]) -> None:
        self._physical.update(pairs)


def ids(text: str) -> list[int]:
    """The physical offsets in a list of message ids."""
    return [int(one[-16:], 16) for one in text.split(",")]


def _properties(send: RemotingCommand) -> str:
    return send.ext.get("i" if send.code != 10 else "properties", "")


def _manifest() -> tuple[set[Position], dict[tuple[str, str], Position]]:
    """What Apache's store contained at the end: all offsets, and the offset of each topic's unique keys."""
    held: set[Position] = set()
    by_key: dict[tuple[str, str], Position] = {}
    for topic in manifest("store-apache")["topics"]:
        for queue in topic["queues"]:
            name = topic["topic"], queue["queueId"]
            for message in queue["messages"]:
                position = name, message["queueOffset"]
                held.add(position)
                by_key[topic["topic"], message["msgId"]] = position
    return held, by_key
