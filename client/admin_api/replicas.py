"""Replicas: the masters and slaves of each broker name, and how far each slave is, FireArrow's or Apache's.

From the name server's cluster info and from what all brokers answer to GET_BROKER_HA_STATUS. A master of FireArrow also
lists slaves that no name server knows any more, until an operator removes them. Nothing is cached. Loop thread.
"""

import asyncio
from dataclasses import dataclass
from typing import Any, NamedTuple

from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow.client.admin_api.admin import Admin
from firearrow.client.admin_api.records import Members, read
from firearrow.client.base.errors import ClientError
from firearrow.client.remoting.routes import MASTER

AT_ONCE = 16
CONNECTIONS_MAX = 1_000
"""Slaves of one master that are looked at."""
FOLLOWS, MISSING = "following", "missing"
"""The states of a slave that follows its master, and of one that its master expects and that is not there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """A master (`broker_id` 0), a slave, or a connection of a slave that cannot be distinguished from others (None).

    `offset`: the end of its log; of a slave what it acknowledged. `in_sync`: as its master reports. `state`, `lag_ms`
    and `lag_messages` (about): only where FireArrow's broker is on the side that knows it. `reason`: why it is not as
    it should be. `other_master`: address of another broker that is this master as well. `refuses`: why a master takes
    no sends. None: not known."""

    broker: str
    broker_id: int | None
    address: str
    answers: bool = True
    says_master: bool | None = None
    in_sync: bool | None = None
    state: str | None = None
    reason: str | None = None
    offset: int | None = None
    lag_bytes: int | None = None
    lag_ms: int | None = None
    lag_messages: int | None = None
    other_master: str | None = None
    refuses: str | None = None

    @property
    def is_master(self) -> bool:
        return self.broker_id == MASTER

    @property
    def is_trouble(self) -> bool:
        """It does not answer; or it is a slave that is not in sync, follows no master, or reports that it is one; or
        there is another master, or it takes no sends."""
        wrong_role = self.says_master is not None and self.says_master != self.is_master
        is_late = self.in_sync is False or self.state not in (None, FOLLOWS)
        is_split = self.other_master is not None or self.refuses is not None
        return not self.answers or wrong_role or is_late or is_split


@dataclass(frozen=True, slots=True)
class _Copy:
    """A slave's connection, as its master sees it."""

    address: str
    offset: int
    lag_bytes: int
    in_sync: bool
    lag_ms: int | None
    lag_messages: int | None

    @property
    def host(self) -> str:
        return _host(self.address)


@dataclass(frozen=True, slots=True)
class _Missing:
    """A slave that its master expects, and that is not connected."""

    name: str
    broker_id: int
    host: str
    offset: int
    reason: str


@dataclass(frozen=True, slots=True)
class _Status:
    """An answer to 907. `client`: a slave's own view. `refused`: host → why the master gives it nothing.
    `never_joined`: slaves that there must be, of which the master knows nothing."""

    master: bool
    offset: int
    copies: tuple[_Copy, ...]
    client: dict[str, Any]
    refused: dict[str, str]
    other_master: str
    missing: tuple[_Missing, ...]
    never_joined: int
    refuses: str


class _Unknown(NamedTuple):
    """`answers`: the broker is there, but does not know the request."""

    reason: str
    answers: bool = False


async def replicas(admin: Admin, broker: str | None = None) -> list[Replica]:
    """Of all broker names or of one, sorted by name and id. TransportError, ClientError: the name server does not
    answer, or knows no such broker."""
    brokers = (await admin.calls.clusters()).brokers
    if broker is not None and broker not in brokers:
        known = ", ".join(sorted(brokers)) or "none"
        raise ClientError(f"broker {broker}: the name server does not know it; known brokers: {known}")
    places = [
        (name, number, address)
        for name, ids in sorted(brokers.items())
        if broker in (None, name)
        for number, address in sorted(ids.items())
    ]
    slots = asyncio.Semaphore(AT_ONCE)

    async def ask(address: str) -> _Status | _Unknown:
        async with slots:
            try:
                answer = await admin.calls.ask(address, RequestCode.GET_BROKER_HA_STATUS)
                return read(answer.body, _status)
            except ClientError as error:
                if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    return _Unknown("it does not report it: it is older than 5.0", answers=True)
                return _Unknown(str(error))

    answers = await asyncio.gather(*(ask(address) for _, _, address in places))
    by_name: dict[str, dict[int, tuple[str, _Status | _Unknown]]] = {}
    for (name, number, address), answer in zip(places, answers, strict=True):
        by_name.setdefault(name, {})[number] = address, answer
    return [each for name, members in by_name.items() for each in _of_name(name, members)]


def _of_name(name: str, members: dict[int, tuple[str, _Status | _Unknown]]) -> list[Replica]:
    address, master = members.get(MASTER, ("", _Unknown("the name server knows no master of it")))
    slaves = {number: member for number, member in members.items() if number != MASTER}
    copies = _matched(slaves, master.copies if isinstance(master, _Status) else ())
    found = [_master(name, address, master)]
    found += [
        _slave(name, number, slaves[number], master, copies.get(number), bool(copies[None]))
        for number in slaves
    ]
    found += [
        Replica(broker=name, broker_id=None, address=copy.address, **_copied(copy)) for copy in copies[None]
    ]
    away = [each for each in found if each.broker_id in slaves.keys() - copies.keys()]
    return [*found, *(_missing(name, away, master) if isinstance(master, _Status) else ())]


def _missing(name: str, listed: list[Replica], master: _Status) -> list[Replica]:
    """Rows of slaves that the master misses and that no name server lists any more. `listed`: rows of those that one
    lists, and that are not connected."""
    rows = list[Replica]()
    for each in master.missing:
        same = [row for row in listed if row.address == each.name or row.broker_id == each.broker_id > 0]
        same = same or [row for row in listed if not each.broker_id and _host(row.address) == each.host]
        if same:  # it is registered, and its row states that it is not connected
            listed.remove(same[0])
            continue
        rows.append(
            Replica(
                broker=name,
                broker_id=each.broker_id or None,
                address=each.name,
                answers=False,
                in_sync=False,
                state=MISSING,
                reason=each.reason,
                offset=each.offset,
                lag_bytes=max(master.offset - each.offset, 0),
            )
        )
    never = master.never_joined - len(listed)
    rows += [
        Replica(
            broker=name,
            broker_id=None,
            address="",
            answers=False,
            in_sync=False,
            state=MISSING,
            reason="it never joined, though totalReplicas, inSyncReplicas or the pair's identity ask for it",
        )
        for _ in range(never)
    ]
    return rows


def _matched(
    slaves: dict[int, tuple[str, _Status | _Unknown]], copies: tuple[_Copy, ...]
) -> dict[int | None, Any]:
    """Slave → its connection at the master; None → those that may be of any. A FireArrow slave states which one it is;
    else the host decides, and at last there may be only one of each."""
    left, found = list(copies), dict[int | None, Any]()
    for number, (_, slave) in slaves.items():
        local = str(slave.client.get("localAddr", "")) if isinstance(slave, _Status) else ""
        for copy in left:
            if local and copy.address == local:
                found[number] = copy
                left.remove(copy)
                break
    for by_host in (True, False):
        open_slaves = [number for number in slaves if number not in found]
        for number in open_slaves:
            host = _host(slaves[number][0])
            same = [copy for copy in left if not by_host or copy.host == host]
            rivals = [each for each in open_slaves if not by_host or _host(slaves[each][0]) == host]
            if len(same) == 1 and len(rivals) == 1:
                found[number] = same[0]
                left.remove(same[0])
    found[None] = left
    return found


def _master(name: str, address: str, status: _Status | _Unknown) -> Replica:
    if isinstance(status, _Unknown):
        return Replica(
            broker=name, broker_id=MASTER, address=address, reason=status.reason, answers=status.answers
        )
    other = status.other_master or None
    reason = f"{other} is also a master of the same epoch" if other else None
    reason = (reason or status.refuses or None) if status.master else "it reports that it is not a master"
    return Replica(
        broker=name,
        broker_id=MASTER,
        address=address,
        says_master=status.master,
        reason=reason,
        offset=status.offset,
        other_master=other,
        refuses=status.refuses or None,
    )


def _slave(
    name: str,
    number: int,
    member: tuple[str, _Status | _Unknown],
    master: _Status | _Unknown,
    copy: _Copy | None,
    others: bool,
) -> Replica:
    """`others`: the master has connections that may be of this slave."""
    address, status = member
    known: dict[str, Any] = {} if copy is None else _copied(copy)
    if isinstance(status, _Unknown):
        known |= {"reason": status.reason, "answers": status.answers}
    elif status.master:
        known |= {"says_master": True, "reason": "it reports that it is also a master"}
    else:
        known |= {"says_master": False, "state": _text(status.client, "state")}
        known["reason"] = _text(status.client, "reason") if known["state"] != FOLLOWS else None
        known.setdefault("offset", _number(status.client, "maxOffset"))
        if known["state"] == FOLLOWS:  # else it may not know where its master is by now
            for mine, theirs in (("lag_bytes", "lagBytes"), ("lag_ms", "lagMs")):
                if known.get(mine) is None:
                    known[mine] = _number(status.client, theirs)
    if copy is None and isinstance(master, _Status):
        if not others:
            known["in_sync"] = False
        if known.get("offset") is not None:
            known["lag_bytes"] = max(master.offset - known["offset"], 0)
        lost = None if others else "the master has no connection of it"
        known["reason"] = master.refused.get(_host(address)) or known.get("reason") or lost
    return Replica(broker=name, broker_id=number, address=address, **known)


def _copied(copy: _Copy) -> dict[str, Any]:
    return {
        "in_sync": copy.in_sync,
        "offset": copy.offset,
        "lag_bytes": copy.lag_bytes,
        "lag_ms": copy.lag_ms,
        "lag_messages": copy.lag_messages,
    }


def _status(answer: Members) -> _Status:
    copies = [Members(entry) for entry in answer.items("haConnectionInfo")[:CONNECTIONS_MAX]]
    refused = [Members(entry) for entry in answer.items("refused")[:CONNECTIONS_MAX]]
    return _Status(
        answer.flag("master"),
        answer.number("masterCommitLogMaxOffset"),
        tuple(
            _Copy(
                entry.text("addr").removeprefix("/"),
                entry.number("slaveAckOffset"),
                entry.number("diff"),
                entry.flag("inSync"),
                _number(dict(entry.pairs()), "lagMs"),
                _number(dict(entry.pairs()), "lagMessages"),
            )
            for entry in copies
        ),
        dict(answer.members("haClientRuntimeInfo").pairs()),
        {_host(entry.text("addr")): entry.text("reason") for entry in refused},
        answer.text("otherMaster"),
        tuple(
            _Missing(
                entry.text("name"),
                entry.number("broker_id"),
                entry.text("host"),
                entry.number("end"),
                entry.text("reason"),
            )
            for entry in map(Members, answer.items("members")[:CONNECTIONS_MAX])
            if not entry.flag("connected")
        ),
        min(answer.number("neverJoined"), CONNECTIONS_MAX),
        answer.text("refuses"),
    )


def _number(values: dict[Any, Any], name: str) -> int | None:
    value = values.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _text(values: dict[Any, Any], name: str) -> str | None:
    value = values.get(name)
    return value if isinstance(value, str) and value else None


def _host(address: str) -> str:
    return address.rpartition(":")[0]
