"""QuotaTable: the quotas that operators set, and their file `quotas.json`, which is ours.

An entity is a user, topic, group or address by name, or `*`: each of the kind that has no quotas of its own. Loop
thread; `to_json` may run in another one.
"""

import ipaddress
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from firearrow._native.protocol import fastjson
from firearrow.broker.base.peer import counted_address, ip_text
from firearrow.broker.tables import json_fields

USER, TOPIC, GROUP, ADDRESS = "user", "topic", "group", "address"
RATES = ("messagesInPerSecond", "bytesInPerSecond", "messagesOutPerSecond", "bytesOutPerSecond")
CONNECTIONS = "connections"
MEMBERS = {USER: (*RATES, CONNECTIONS), TOPIC: RATES, GROUP: RATES[2:], ADDRESS: (CONNECTIONS,)}
"""The quotas that each kind of entity may have."""
EVERY = "*"
QUOTAS_MAX = 10_000
"""Entities with quotas."""
NAME_CHARS_MAX = 255
VALUE_MAX = 10**15
QUOTAS_FILE = "quotas.json"


class InvalidQuota(ValueError):
    """The text states what is wrong."""


class Entity(NamedTuple):
    kind: str
    name: str


class QuotaTable:
    def __init__(self, changed: Callable[[], None] = lambda: None) -> None:
        self._changed = changed
        self._table: dict[Entity, dict[str, int]] = {}

    def __iter__(self) -> Iterator[tuple[Entity, Mapping[str, int]]]:
        """By kind and name."""
        return iter(sorted(self._table.copy().items()))

    def of_kind(self, kind: str) -> dict[str, Mapping[str, int]]:
        """Name → quotas."""
        return {entity.name: quotas for entity, quotas in self._table.items() if entity.kind == kind}

    def names(self, kind: str, name: str) -> bool:
        """Whether this one has quotas of its own."""
        return Entity(kind, name) in self._table

    def value(self, kind: str, name: str, member: str) -> int:
        """The quota of the entity, or of each of its kind; 0: none."""
        quotas = self._table.get(Entity(kind, name))
        if quotas is None:
            quotas = self._table.get(Entity(kind, EVERY), {})
        return quotas.get(member, 0)

    def update(self, entity: Entity, changes: Mapping[str, int | None]) -> Mapping[str, int]:
        """Set quotas of the entity, and remove those that are None; returns what it has now. InvalidQuota."""
        entity = checked(entity)
        fresh = dict(self._table.get(entity, {}))
        for member, value in changes.items():
            if member not in MEMBERS[entity.kind]:
                known = ", ".join(MEMBERS[entity.kind])
                raise InvalidQuota(f"a {entity.kind} has no quota {member[:64]!r}: use {known}")
            if value is None:
                fresh.pop(member, None)
                continue
            if not 1 <= value <= VALUE_MAX:
                raise InvalidQuota(f"{member} must be 1 to {VALUE_MAX}, not {value}")
            fresh[member] = value
        table = dict(self._table)
        if fresh:
            table[entity] = fresh
        else:
            table.pop(entity, None)
        if len(table) > QUOTAS_MAX:
            raise InvalidQuota(f"{QUOTAS_MAX} entities have quotas already: delete one first")
        self._table = table
        self._changed()
        return fresh

    def to_json(self) -> bytes:
        rows = [{"entity": entity.kind, "name": entity.name, **quotas} for entity, quotas in self]
        return fastjson.pretty({"quotas": rows})

    def load(self, text: bytes) -> None:
        """Replace the table by the file's quotas. ValueError: nothing changed."""
        fresh = QuotaTable()
        rows = json_fields.items(
            json_fields.members(fastjson.loads(text), QUOTAS_FILE).get("quotas"), "quotas"
        )
        if len(rows) > QUOTAS_MAX:
            raise ValueError(f"{len(rows)} entities have quotas, at most {QUOTAS_MAX} are allowed")
        for row in rows:
            of = json_fields.members(row, "a member of quotas")
            entity = checked(Entity(json_fields.text(of, "entity"), json_fields.text(of, "name")))
            fresh._table[entity] = {
                member: json_fields.number(of, member, low=1, high=VALUE_MAX)
                for member in MEMBERS[entity.kind]
                if member in of
            }
        self._table = fresh._table


def checked(entity: Entity) -> Entity:
    """The entity, with an address as it is compared. InvalidQuota."""
    kind, name = entity
    if kind not in MEMBERS:
        raise InvalidQuota(f"{kind[:64]!r} has no quotas: use {', '.join(MEMBERS)}")
    if not 0 < len(name) <= NAME_CHARS_MAX or not name.isprintable() or " " in name:
        raise InvalidQuota(f"the name must have 1 to {NAME_CHARS_MAX} characters, none of them a space")
    if kind == ADDRESS and name != EVERY:
        return Entity(kind, _address(name))
    return entity


def _address(name: str) -> str:
    """The address as it is counted, or the network of 64 bits. InvalidQuota."""
    try:
        if "/" not in name:
            return str(ipaddress.ip_address(ip_text(name)))
        network = ipaddress.IPv6Network(name, strict=False)
        if str(network) == counted_address(str(network[0])):
            return str(network)
    except ValueError:
        pass
    raise InvalidQuota(
        f"{name!r} is not an IP address: give one, an IPv6 network such as 2001:db8::/64, or {EVERY}"
    )
