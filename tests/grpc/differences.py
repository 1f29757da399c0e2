"""The allowed differences from Apache's proxy: each with a name and the only condition under which it is allowed.

docs/PROTOCOL.md gives the reason for each, under the same name. The first rule that matches names a difference.
"""

import re
import time
from collections.abc import Callable
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp

from firearrow.broker.timers.recall_handle import InvalidRecallHandle, RecallHandle
from tests.grpc.comparison import ABSENT, Answer, Difference
from tests.grpc.translation import ORPHAN

Rule = Callable[[Difference], bool]

AT_MOST_S = 600
"""How long ago a time in our answer may be."""
IN_ORDER = frozenset(("FIFO", "PRIORITY"))
"""Messages of these types have a queue of their own."""
QUEUES = 4
WORDS, STATED, IN_TURN = 9, (2, 4, 5), "999"
"""Of a receipt handle: how many; those of the invisible time, of the kind of topic and of the broker; and the revive
queue of messages that come in order."""
PLACE = re.compile(r"\d+-\d+")
JAVA = re.compile(r"(org\.apache\.[\w.]+|\w+Exception): ")
UNKNOWN_TOPIC = "CODE: 17  DESC: "
MORE = "\nFor more information, please visit the url, https://rocketmq.apache.org/docs/bestPractice/06FAQ"
OFFSETS = frozenset(("PullMessage", "UpdateOffset", "GetOffset", "QueryOffset"))
PULL_CONSUMER = "Client type is not consumer, type: PULL_CONSUMER"
REFUSED = "INTERNAL_SERVER_ERROR"
FORWARD = "ForwardMessageToDeadLetterQueue"
OK = ("OK", "")
MALFORMED = "create authentication context error."
LITE, PROBE = "java-lite-cluster-mode", "probe-refusals"
OF_LOAD = frozenset(("questions about transactions", "settings and an end at once"))
"""They occur on a slow machine."""


def name_of(difference: Difference) -> str | None:
    return next((name for name, rule in RULES.items() if rule(difference)), None)


# ---- what is another one in each run ----


def _times(d: Difference) -> bool:
    if d.leaf != "store_timestamp" and d.path != ("delivery_timestamp",):
        return False
    return _seconds(d.theirs) is not None and abs((_seconds(d.ours) or 0) - time.time()) < AT_MOST_S


def _seconds(text: Any) -> int | None:  # noqa: ANN401
    found = Timestamp()
    try:
        found.FromJsonString(text)
    except (ValueError, TypeError):
        return None
    return int(found.seconds)


def _ports(d: Difference) -> bool:
    if d.leaf != "store_host" or ABSENT in (d.theirs, d.ours):
        return False
    (theirs, _, _), (ours, _, port) = (str(each).rpartition(":") for each in (d.theirs, d.ours))
    return theirs == ours and port.isdecimal()


def _queues(d: Difference) -> bool:
    """Where a queue takes its turn, a proxy begins anywhere."""
    if d.leaf not in ("queue_id", "queue_offset", "offset"):
        return False
    if d.leaf == "queue_offset" and ABSENT in (d.theirs, d.ours):
        return False
    theirs, ours = (str(each or 0) for each in (d.theirs, d.ours))
    if not theirs.isdecimal() or not ours.isdecimal() or (d.leaf == "queue_id" and int(ours) >= QUEUES):
        return False
    return _kind(d) not in IN_ORDER


def _kind(d: Difference) -> str:
    """The type of the message that the value is of."""
    if d.path[0] == "entries":
        message: Answer = d.request["messages"][d.path[1]]
    else:
        message = d.their_answer.get("message", d.their_answer.get(ORPHAN, {}).get("message", {}))
    return str(message.get("system_properties", {}).get("message_type", ""))


def _receipts(d: Difference) -> bool:
    """Ours states what theirs does: how long, of which kind of topic, of which broker, and whether in order; and where
    its message is."""
    if d.leaf != "receipt_handle" or ABSENT in (d.theirs, d.ours):
        return False
    theirs, ours = (str(each).split(" ") for each in (d.theirs, d.ours))
    extra = d.rpc == "ChangeInvisibleDuration"  # theirs has another word then
    if len(theirs) != WORDS + extra or len(ours) != WORDS or not all(map(str.isdecimal, ours[:5] + ours[6:])):
        return False
    same = [theirs[n] for n in STATED] == [ours[n] for n in STATED]
    own = d.our_answer.get("message", {}).get("system_properties", {})
    is_there = ours[6:8] == [str(own.get("queue_id", 0)), own.get("queue_offset")] or not own
    return same and is_there and (theirs[3] == IN_TURN) == (ours[3] == IN_TURN)


def _recalls(d: Difference) -> bool:
    """Our answer has another time."""
    if d.leaf != "recall_handle":
        return False
    try:
        theirs, ours = (RecallHandle.parse(each) for each in (d.theirs, d.ours))
    except (InvalidRecallHandle, AttributeError, TypeError):
        return False
    return theirs._replace(time="") == ours._replace(time="") and int(ours.time) > int(theirs.time)


# ---- what we do otherwise ----


def _transactions(d: Difference) -> bool:
    if d.leaf != "transaction_id" or not isinstance(d.ours, str):
        return False
    message_id, _, place = d.ours.partition("-")
    is_half = ORPHAN in d.their_answer or _kind(d) == "TRANSACTION"
    return is_half and message_id == d.theirs and PLACE.fullmatch(place) is not None


def _codes(*pairs: tuple[str, str, str]) -> Rule:
    """Of the status of an answer or an entry: method, their code, our code."""
    return lambda d: d.codes is not None and (d.rpc, *d.codes) in pairs


def _java_names(d: Difference) -> bool:
    theirs, ours = d.texts
    return d.path[-2:] == ("status", "message") and theirs != ours == JAVA.sub("", theirs)


def _unknown_topics(d: Difference) -> bool:
    if d.path == ("status", "message"):
        theirs, ours = d.texts
        return theirs == UNKNOWN_TOPIC + ours + MORE
    return d.codes is not None and (d.rpc, *d.codes) in (
        ("SendMessage", "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE", "TOPIC_NOT_FOUND"),
        ("ReceiveMessage", REFUSED, "TOPIC_NOT_FOUND"),
    )


def _known_addresses(d: Difference) -> bool:
    """Those of the request; without any, ours."""
    if d.rpc != "QueryRoute" or "endpoints" not in d.path:
        return False
    asked = d.request.get("endpoints")
    of_queue = d.our_answer["message_queues"][d.path[1]]["broker"]["endpoints"]
    return of_queue == asked if asked else d.leaf == "port" and of_queue["scheme"] == "IPv4"


def _entries(d: Difference) -> bool:
    """Theirs is one for all messages of a batch, with an id of the server's."""
    if d.rpc != "SendMessage" or len(d.request["messages"]) < 2 or d.path[0] != "entries":
        return False
    n = d.path[1]
    assert isinstance(n, int)
    sent = d.request["messages"][n]["system_properties"]["message_id"]
    if d.theirs is ABSENT and len(d.path) == 2:
        return bool(n > 0 and d.ours["message_id"] == sent)
    return n == 0 and d.leaf in ("message_id", "transaction_id") and d.ours == sent


def _offsets(d: Difference) -> bool:
    if d.rpc not in OFFSETS:
        return False
    return d.path == ("surplus",) or (d.path == ("end",) and (d.theirs[0], d.ours) == ("UNIMPLEMENTED", OK))


def _pull_consumers(d: Difference) -> bool:
    kind = d.request.get("settings", {}).get("client_type")
    if d.rpc != "Telemetry" or kind != "PULL_CONSUMER":
        return False
    return d.path == ("surplus",) or (d.path == ("end",) and d.theirs[1].endswith(PULL_CONSUMER))


def _shares(d: Difference) -> bool:
    """In this recording a consumer of remoting got the other messages."""
    return d.recording == "java-remoting-both" and d.path == ("deliveries",) and d.theirs == 0


def _questions(d: Difference) -> bool:
    return d.path == ("questions",)


def _ends_at_once(d: Difference) -> bool:
    """This client sends its settings and its end at once, on two streams: either may come first."""
    codes = ("UNRECOGNIZED_CLIENT_TYPE", "OK")
    return d.recording == "python-wrong-type" and d.rpc == "NotifyClientTermination" and d.codes == codes


def _signatures(d: Difference) -> bool:
    """Of a signature that is not hexadecimal, Apache does not state what is wrong."""
    return d.path == ("status", "message") and d.texts == (MALFORMED, "check signature failed.")


def _digests(d: Difference) -> bool:
    """And what was refused is not received."""
    if d.path == ("refused",):
        return d.recording == PROBE
    return _codes(("SendMessage", "OK", "MESSAGE_CORRUPTED"))(d)


def _common_texts(d: Difference) -> bool:
    """The status of an answer is that of its first entry; theirs has the name of the code as its text."""
    if d.rpc != "AckMessage" or d.path != ("status", "message"):
        return False
    status = d.our_answer["status"]
    return d.theirs == status["code"] and status == d.our_answer["entries"][0]["status"]


def _lite_topics(d: Difference) -> bool:
    """Theirs shows the broker's own property; a group without lite topics has a text of its own."""
    if d.recording == LITE:
        own = "INNER_MULTI_DISPATCH"
        return d.path[-1:] == (own,) or (d.path[-1:] == ("user_properties",) and own in str(d.theirs))
    return d.rpc == "SyncLiteSubscription" and d.path == ("status", "message") and "null" in str(d.theirs)


RULES: dict[str, Rule] = {
    "times": _times,
    "ports": _ports,
    "queues that take turns": _queues,
    "receipt handles": _receipts,
    "recall handles": _recalls,
    "ids of transactions": _transactions,
    "texts without Java": _java_names,
    "unknown topics": _unknown_topics,
    "addresses that clients know": _known_addresses,
    "an entry for each message": _entries,
    "offsets and pulls": _offsets,
    "pull consumers": _pull_consumers,
    "messages of a remoting consumer": _shares,
    "questions about transactions": _questions,
    "settings and an end at once": _ends_at_once,
    "malformed signatures": _signatures,
    "receives before settings": _codes(("ReceiveMessage", REFUSED, "UNRECOGNIZED_CLIENT_TYPE")),
    "filters that cannot be parsed": _codes(("ReceiveMessage", REFUSED, "ILLEGAL_FILTER_EXPRESSION")),
    "acknowledgements of nothing": _codes(("AckMessage", REFUSED, "BAD_REQUEST")),
    "malformed receipt handles": _codes(
        *(
            (rpc, REFUSED, "INVALID_RECEIPT_HANDLE")
            for rpc in ("AckMessage", "ChangeInvisibleDuration", FORWARD)
        )
    ),
    "transactions that are known by their ids": _codes(
        ("EndTransaction", REFUSED, "INVALID_TRANSACTION_ID"),
        ("EndTransaction", "OK", "INVALID_TRANSACTION_ID"),
        ("EndTransaction", REFUSED, "OK"),
    ),
    "digests are checked": _digests,
    "texts of entries": _common_texts,
    "lite topics": _lite_topics,
}
