"""The values of requests that only FireArrow's broker answers (`extensions`), read from its JSON.

A member is the field's name in camel case; one that is missing is 0, empty or false. Times in ms since 1970.
`broker`: the name of the broker that answered.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, Generic, TypeVar

from firearrow.client.admin_api.records import Members

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class TrimmedQueue:
    """The queue's first offset now, its end, and how many messages were removed."""

    queue_id: int
    min_offset: int
    max_offset: int
    trimmed: int
    broker: str = ""


@dataclass(frozen=True, slots=True)
class PendingTimer:
    """A message that waits for its time. `kind`: timer or delay. `bytes`: of its body. `recall_handle`: "" if it
    cannot be recalled."""

    topic: str
    queue_id: int
    due_ms: int
    stored_ms: int
    msg_id: str
    keys: str
    tags: str
    bytes: int
    kind: str
    recall_handle: str
    broker: str = ""


@dataclass(frozen=True, slots=True)
class HalfMessage:
    """A message of a transaction that is not decided. `next_check_ms`: when its producer is probably asked."""

    topic: str
    group: str
    born_ms: int
    stored_ms: int
    msg_id: str
    transaction_id: str
    offset_msg_id: str
    checks: int
    next_check_ms: int
    born_host: str
    keys: str
    tags: str
    broker: str = ""


@dataclass(frozen=True, slots=True)
class EntityQuotas:
    """Quotas of a user, topic, group or address, and what it used in the last second. `by_default`: they are those
    of `*`. `delayed`, `refused`: requests since the entity was first seen."""

    entity: str
    name: str
    by_default: bool
    quotas: Mapping[str, int]
    used: Mapping[str, int]
    delayed: int
    refused: int
    broker: str = ""

    @staticmethod
    def of(members: Members, broker: str) -> "EntityQuotas":
        quotas, used = (
            {str(name): value for name, value in members.members(each).pairs() if isinstance(value, int)}
            for each in ("quotas", "used")
        )
        return EntityQuotas(
            members.text("entity", ""),
            members.text("name", ""),
            members.flag("byDefault"),
            quotas,
            used,
            members.number("delayed"),
            members.number("refused"),
            broker,
        )


@dataclass(frozen=True, slots=True)
class QueueLock:
    """A queue that a member of a group consumes in order. `committed`: -1 if there is no offset; `head_offset`: of
    the first message that is not consumed, -1 if there is none."""

    group: str
    topic: str
    queue_id: int
    client_id: str
    connected: bool
    locked_ms: int
    last_renewed_ms: int
    committed: int
    head_offset: int
    head_msg_id: str
    head_age_ms: int
    broker: str = ""


@dataclass(frozen=True, slots=True)
class PoppedMessage:
    """A message that was popped and not acknowledged; from `invisible_until_ms` on it is delivered again."""

    topic: str
    group: str
    queue_id: int
    offset: int
    popped_ms: int
    invisible_until_ms: int
    reconsume_times: int
    broker: str = ""


@dataclass(frozen=True, slots=True)
class GroupQueueLag:
    """`committed`: -1 if the group has no offset. `lag_ms`: the age of the next message, 0 if there is none."""

    group: str
    topic: str
    queue_id: int
    min_offset: int
    max_offset: int
    committed: int
    lag: int
    lag_ms: int
    next_stored_ms: int
    broker: str = ""


@dataclass(frozen=True, slots=True)
class LoggedLine:
    """`number`: from 1 on in each process of the broker."""

    number: int
    at_ms: int
    level: str
    logger: str
    text: str
    broker: str = ""


@dataclass(frozen=True, slots=True)
class RefusedRequest:
    """The last of `count` equal refusals of one address. `reason`: the name of the response code."""

    at_ms: int
    code: int
    response_code: int
    reason: str
    address: str
    topic: str
    group: str
    count: int
    broker: str = ""


@dataclass(frozen=True, slots=True)
class BrokerConnection:
    """`client_id` is empty, and `version` 0, for a connection that sent no heartbeat. `client_version`: as a client of
    gRPC states it. `frames`: those received, `calls`: of gRPC. `to_name_server`: to the name server in the broker's
    process. `asks`: the connection of this request."""

    address: str
    client_id: str
    language: str
    version: int
    groups: tuple[str, ...]
    producer_groups: tuple[str, ...]
    since_ms: int
    last_request_ms: int
    protocol: str
    client_version: str = ""
    frames: int = 0
    calls: int = 0
    to_name_server: bool = False
    asks: bool = False
    broker: str = ""


@dataclass(frozen=True, slots=True)
class Refusals:
    """`last`: newest first; `by_reason`: refusals since the brokers' start."""

    last: tuple[RefusedRequest, ...]
    by_reason: dict[str, int]


@dataclass(frozen=True, slots=True)
class Listing(Generic[Row]):
    """`more`: there are more, or the broker stopped after it had read many."""

    rows: tuple[Row, ...]
    more: bool

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)


def rows_of(kind: type[Row], member: str, broker: str) -> Callable[[Members], Listing[Row]]:
    """Reads the list `member` of an answer."""

    def read_rows(answer: Members) -> Listing[Row]:
        rows = tuple(row_of(kind, Members(item), broker) for item in answer.items(member))
        return Listing(rows, answer.flag("more"))

    return read_rows


def row_of(kind: type[Row], of: Members, broker: str) -> Row:
    values: dict[str, Any] = {"broker": broker}
    for each in fields(kind):  # type: ignore[arg-type]
        first, *words = each.name.split("_")
        name = first + "".join(map(str.capitalize, words))
        if each.default is not MISSING:
            continue
        if each.type is int:
            values[each.name] = of.number(name)
        elif each.type is bool:
            values[each.name] = of.flag(name)
        else:
            values[each.name] = of.text(name, "") if each.type is str else tuple(of.texts(name))
    if kind is BrokerConnection:
        requests = of.members("requests")
        values["frames"], values["calls"] = requests.number("frames", 0), requests.number("calls", 0)
        values["client_version"] = of.text("clientVersion", "")
        values["to_name_server"], values["asks"] = of.flag("toNameServer"), of.flag("asks")
    return kind(**values)
