"""The allowed differences from Apache: each with a name and the only condition under which it is allowed.

docs/PROTOCOL.md gives the reason for each, under the same name. The first rule that matches names a difference.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

from firearrow._native.protocol.message_queue import MessageQueue
from firearrow.broker.base import tls
from firearrow.broker.base.options import options_by_key
from firearrow.broker.timers.recall_handle import InvalidRecallHandle, RecallHandle
from tests.wire_golden import pops
from tests.wire_golden.comparison import ABSENT, Difference
from tests.wire_golden.translation import Translation

Rule = Callable[[Difference, Translation], bool]

TIMES = frozenset(
    (
        "timestamp",
        "lastTimestamp",
        "lastUpdateTimestamp",
        "storeTimestamp",
        "PUSH_REPLY_TIME",
        "store_timestamp",
        "indexLastUpdateTimestamp",
        "bootTimestamp",
        "earliestMessageTimeStamp",
        "TIMER_DELIVER_MS",
        "TIMER_OUT_MS",
        "TIMER_ENQUEUE_MS",
        "TIMER_DEQUEUE_MS",
        "popTime",
        "1ST_POP_TIME",
    )
)
COUNTERS = frozenset(("counter", "stateVersion"))
SETTINGS = (26, 319)
OWN_SETTINGS = frozenset(
    (
        "namesrvAddr",
        "rocketmqHome",
        "storePathRootDir",
        "storePathCommitLog",
        "listenPort",
        "haListenPort",
        "brokerIP2",
        "configStorePath",
        "kvConfigPath",
        "bindAddress",
        "transactionCheckInterval",
        "transactionTimeOut",
        "fileReservedTime",
    )
)
"""Our paths and ports, and times that are changed for the replay."""
AUTH_NAMES = ("Enabled", "MetadataProvider", "Provider", "Strategy", "Whitelist")
OUR_KEYS = frozenset(
    (
        "consoleContext",
        "consoleIdleTimeout",
        "consoleListen",
        "consoleMaskBodies",
        "consoleReadOnly",
        "haMasterAddress",
        "haAllowedAddresses",
        "haSecret",
        "metricsIdleGroups",
        "readUnconfirmedMessages",
        "maxFilterCacheChars",
        "advertisedPort",
        "grpcMaxInboundMessageSize",
        "grpcServerPort",
        "grpcSignatureMaxAgeSec",
        "maxHeldPulls",
        "maxHalfMessagesWaiting",
        "maxReplyBytesWaiting",
        "maxTopicNums",
        "maxTopicQueueNums",
        "com.rocketmq.remoting.frameMaxLength",
        "fastPath",
        "fastSockets",
        "maxConnectionBytes",
        "proxyProtocolTrustedAddresses",
        "authAuditLog",
        "rocketmq.acl.plain.file",
        "migrateAuthFromV1Enabled",
        "initAuthenticationUser",
        "innerClientAuthenticationCredentials",
        *tls.KEYS,
        *(f"{part}{name}" for part in ("authentication", "authorization") for name in AUTH_NAMES),
    )
)
"""Options that Apache does not have, or has as a property of its Java process or in its AuthConfig, which it does not
return."""
OFFSETS = frozenset(
    (
        "offset",
        "maxOffset",
        "minOffset",
        "nextBeginOffset",
        "brokerOffset",
        "consumerOffset",
        "pullOffset",
        "queueOffset",
    )
)
CLIENT_PORT = re.compile(r"127\.0\.0\.1:\d+")
IDS = ("transactionId", "UNIQ_KEY")
ROCKSDB_TOPICS = frozenset(("RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"))
OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
UNRECORDED_GROUPS = frozenset(("CG_ADMIN2", "x"))
OWN_READERS = ("CID_RMQ_SYS_TRANS", "CID_RMQ_SYS_REVIVE_GROUP")
"""Services that read their own queues; only Apache counts these reads."""
RATES = ("consumeTps", "topicPutTps")
MACHINERY = re.compile(
    r".*ThreadPoolQueueCapacity$|putLatency|.*EntireTimeMax$"
    r"|putMessageDistributeTime$|dispatchMaxBuffer$|remainTransientStoreBufferNumbs$|commitLogDiskRatio_/"
    r"|fastPath_\w+$"
)
"""Keys of the runtime info for thread pools, later services and buffers that do not exist here, and for our own."""


def name_of(difference: Difference, translation: Translation) -> str | None:
    return next((name for name, rule in RULES.items() if rule(difference, translation)), None)


# ---- addresses and times ----


def _numbers(d: Difference) -> tuple[int, int] | None:
    """Both values, if both are integers or strings of such."""
    try:
        return int(d.theirs), int(d.ours)
    except (TypeError, ValueError):
        return None


def _times(d: Difference, _: Translation) -> bool:
    """Both sides have a time, or neither does."""
    if d.leaf == "recallHandle":
        return _timeless(d.theirs) == _timeless(d.ours) is not None
    if d.leaf == "POP_CK":
        return pops.timeless(d.theirs) == pops.timeless(d.ours) is not None
    both = _numbers(d)
    if d.leaf == "invisibleTime":
        return both is not None and both[1] == pops.shorter(both[0])
    return d.leaf in TIMES and both is not None and both[1] >= 0 and (both[0] > 0) == (both[1] > 0)


def _timeless(handle: Any) -> RecallHandle | None:  # noqa: ANN401
    """A recall handle without its time; None if it is malformed."""
    try:
        return RecallHandle.parse(handle)._replace(time="")
    except (InvalidRecallHandle, TypeError):
        return None


def _versions(d: Difference, _: Translation) -> bool:
    return d.leaf in COUNTERS and ("dataVersion" in d.path or d.path[:2] == ("ext", "version"))


def _addresses(d: Difference, translation: Translation) -> bool:
    """Our ports; nothing else of an address or of the host in a message id."""
    if d.leaf in ("born_host", "store_host"):
        return bool(d.theirs[:4] == d.ours[:4])
    if not isinstance(d.theirs, str) or not isinstance(d.ours, str):
        return False
    theirs, ours = (CLIENT_PORT.sub("client", text) for text in (translation.text(d.theirs), d.ours))
    return theirs == ours


def _physical_offsets(d: Difference, translation: Translation) -> bool:
    both = _numbers(d)
    if both is None:
        return False
    if d.leaf in ("physical_offset", "physicOffset", "commitLogOffset", "prepared_offset") and both[0] > 0:
        return translation.physical(both[0]) == both[1]
    return d.leaf in ("masterCommitLogMaxOffset", "indexLastUpdatePhyoffset") and 0 < both[1] < both[0]


def _marks_at_once(d: Difference, _: Translation) -> bool:
    """There is one op message for each write batch here; Apache collects offsets for three seconds."""
    both = _numbers(d)
    of_marks = any(getattr(part, "topic", "") == OP_TOPIC for part in d.path)
    return of_marks and d.leaf in OFFSETS and both is not None and 0 < both[0] <= both[1]


def _made_ids(d: Difference, _: Translation) -> bool:
    """A unique id that the broker generated, because the sender gave none."""
    return d.leaf in IDS and len(d.theirs or "") == len(d.ours or "") == 32


def _order_of_handling(d: Difference, _: Translation) -> bool:
    """Requests within a fraction of a second, which Apache's threads handled in another order."""
    if d.asked in (11, 361):
        return (d.path == ("silence",) and d.theirs == 24) or (
            d.path == ("code",) and (d.theirs[0], d.ours[0]) in ((25, 0), (0, 25))
        )
    return d.asked == 300 and d.theirs == ["CG_SQL_WRONG"] and d.ours == []


def _routes_at_once(d: Difference, _: Translation) -> bool:
    return d.asked == 105 and d.path == ("code",) and (d.theirs[0], d.ours[0]) == (17, 0)


# ---- form ----


def _form(d: Difference, _: Translation) -> bool:
    asked = d.request.serializer if d.request is not None else 0
    return d.path == ("serializer",) and d.ours == asked


def _java_error(d: Difference, _: Translation) -> bool:
    return d.path == ("remark",) and str(d.theirs).startswith("java.lang.") and bool(d.ours)


# ---- reports on the process ----


def _settings(d: Difference, _: Translation) -> bool:
    """Apache's keys that have no effect here are not returned; paths and ports are our own."""
    if d.asked not in SETTINGS or d.path[0] != "body" or d.leaf == "body":
        return False
    if d.ours is ABSENT:
        return d.leaf not in options_by_key()
    return d.leaf in OWN_SETTINGS or (d.theirs is ABSENT and d.leaf in OUR_KEYS)


def _statistics(d: Difference, _: Translation) -> bool:
    """Rates, counts and loads differ; only values on mechanisms that do not exist here may be missing."""
    if d.leaf in RATES:
        return d.ours is not ABSENT
    if d.asked == 315 and d.path == ("code",):
        group = d.exchange.request.command.ext["statsKey"].partition("@")[2] if d.exchange.request else ""
        return d.ours[0] == 1 and group in OWN_READERS
    if d.asked == 315:
        return d.path[0] == "body" and d.leaf in ("avgpt", "sum", "tps") and d.ours is not ABSENT
    if d.asked != 28 or d.path[:2] != ("body", "table"):
        return False
    return (d.theirs is not ABSENT and d.ours is not ABSENT) or bool(MACHINERY.match(str(d.leaf)))


def _pull_offsets(d: Difference, _: Translation) -> bool:
    return d.asked == 317 and ((d.leaf == "pullOffset" and d.theirs == 0) or d.leaf == "totalInflightDiff")


def _unrecorded(d: Difference, _: Translation) -> bool:
    both = _numbers(d)
    if d.leaf == "totalGroupNum":
        return both is not None and both[0] - both[1] == len(UNRECORDED_GROUPS)
    return d.leaf in UNRECORDED_GROUPS and d.ours is ABSENT


# ---- not supported ----


def _rocksdb(d: Difference, _: Translation) -> bool:
    """Two topics that Apache creates for a store that we do not have, and their counters."""
    if d.path == ("code",):
        return d.ours[0] in (1, 17) and d.topic in ROCKSDB_TOPICS
    if d.leaf == "topicList":
        return not d.ours and set(d.theirs) <= ROCKSDB_TOPICS
    if d.leaf in ("wipeTopicCount", "addTopicCount", "totalTopicNum"):
        both = _numbers(d)
        return both is not None and both[0] - both[1] == len(ROCKSDB_TOPICS)
    return d.ours is ABSENT and any(part in ROCKSDB_TOPICS for part in _parts(d))


def _parts(d: Difference) -> Iterator[Any]:
    for part in d.path:
        yield part.topic if isinstance(part, MessageQueue) else part


def _walk(d: Difference, _: Translation) -> bool:
    """A pop of all queues begins at a random one; where that could matter the replay names the queue, and fewer
    messages are left in one queue than in all. A shorter time has one digit less."""
    both = _numbers(d)
    if d.asked != pops.POP or both is None:
        return False
    return (d.leaf == "restNum" and 0 <= both[1] < both[0]) or (d.leaf == "size" and both[0] == both[1] + 1)


RULES: dict[str, Rule] = {
    "form of the header": _form,
    "times": _times,
    "data versions": _versions,
    "ports": _addresses,
    "physical offsets": _physical_offsets,
    "marks at once": _marks_at_once,
    "made ids": _made_ids,
    "order of handling": _order_of_handling,
    "routes at once": _routes_at_once,
    "errors without Java": _java_error,
    "settings": _settings,
    "statistics": _statistics,
    "pull offsets of 317": _pull_offsets,
    "not recorded": _unrecorded,
    "the walk of a pop": _walk,
    "topics of RocksDB": _rocksdb,
}
