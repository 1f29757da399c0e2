"""Users, resources, policies: the values of Apache's `auth` module, with the texts of its bodies. Any thread.

A resource's text is `*`, `Type:*`, `Type:name` or `Type:prefix*`. An acl is what one user may do: at most two
policies, Custom and Default, of entries (resource, actions, source addresses, decision).
"""

import ipaddress
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import Enum, IntFlag, StrEnum
from functools import lru_cache
from typing import Self

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

USER_PREFIX = "User:"
RETRY_PREFIX = "%RETRY%"


class _Named(StrEnum):
    @classmethod
    def named(cls, name: object) -> Self | None:
        """The member of this name, in either case; None if there is none."""
        folded = name.lower() if isinstance(name, str) else None
        return next((each for each in cls if each.value.lower() == folded), None)


class UserType(_Named):
    SUPER = "Super"
    NORMAL = "Normal"


class UserStatus(_Named):
    ENABLE = "enable"
    DISABLE = "disable"


class Decision(_Named):
    ALLOW = "Allow"
    DENY = "Deny"


class PolicyType(_Named):
    CUSTOM = "Custom"
    DEFAULT = "Default"


class ResourceType(_Named):
    UNKNOWN = "Unknown"
    ANY = "Any"
    CLUSTER = "Cluster"
    NAMESPACE = "Namespace"
    TOPIC = "Topic"
    GROUP = "Group"


class Pattern(Enum):
    """In the order in which entries decide."""

    LITERAL = 0
    PREFIXED = 1
    ANY = 2


class Action(IntFlag):
    UNKNOWN = 1
    ALL = 2
    ANY = 4
    PUB = 8
    SUB = 16
    CREATE = 32
    UPDATE = 64
    DELETE = 128
    GET = 256
    LIST = 512

    @classmethod
    def named(cls, name: object) -> "Action | None":
        """The action of this name, in either case; None if there is none."""
        folded = name.upper() if isinstance(name, str) else None
        return next((each for each in cls if each.name == folded), None)

    @property
    def text(self) -> str:
        """`Pub`; of several, `Pub,Sub`."""
        return ",".join((each.name or "").capitalize() for each in self)


@dataclass(frozen=True, slots=True)
class Resource:
    """`name`: "" if the pattern is ANY."""

    type: ResourceType
    name: str
    pattern: Pattern = Pattern.LITERAL

    @staticmethod
    def parse(text: str) -> "Resource | None":
        """The resource that a text names, as Apache reads it; None if it names none."""
        if not text.strip():
            return None
        if text == "*":
            return Resource(ResourceType.ANY, "", Pattern.ANY)
        type_name, _, name = text.partition(":")
        kind = ResourceType.named(type_name)
        if kind is None:
            return None
        if name == "*":
            return Resource(kind, "", Pattern.ANY)
        if name.endswith("*"):
            return Resource(kind, name.partition("*")[0], Pattern.PREFIXED)
        return Resource(kind, name)

    @staticmethod
    def topic(name: str) -> "Resource":
        return Resource(ResourceType.TOPIC, name)

    @staticmethod
    def group(name: str) -> "Resource":
        """A retry topic counts as its group."""
        return Resource(ResourceType.GROUP, name.removeprefix(RETRY_PREFIX))

    @staticmethod
    def cluster(name: str) -> "Resource":
        return Resource(ResourceType.CLUSTER, name)

    def __str__(self) -> str:
        if self.type is ResourceType.ANY:
            return "*"
        ending = "" if self.pattern is Pattern.LITERAL else "*"
        return f"{self.type.value}:{self.name}{ending}"

    def covers(self, other: "Resource") -> bool:
        """Whether an entry for this resource speaks of `other`, which is a literal one."""
        if self.type is ResourceType.ANY:
            return True
        if self.type is not other.type:
            return False
        if self.pattern is Pattern.LITERAL:
            return self.name == other.name
        return self.pattern is Pattern.ANY or other.name.startswith(self.name)


@lru_cache(maxsize=1024)
def address_of(text: str) -> Address | None:
    """The address that a text is; IPv4 in IPv6 as IPv4. None if it is none."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def network_of(text: str) -> Network | None:
    """One address, or a block such as 10.0.0.0/8; None if it is neither."""
    if text.partition("/")[2].strip("0123456789"):  # a mask in another form
        return None
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class PolicyEntry:
    """`sources`: addresses and blocks; empty: from everywhere. `ranges`: by the version of IP, the first addresses of
    disjoint ranges, sorted, and their last ones."""

    resource: Resource
    actions: tuple[Action, ...]
    decision: Decision
    sources: tuple[str, ...] = ()
    granted: Action = field(init=False, compare=False)
    ranges: dict[int, tuple[list[int], list[int]]] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        granted = Action(0)
        for action in self.actions:
            granted |= action
        object.__setattr__(self, "granted", granted)
        object.__setattr__(self, "ranges", _ranges(self.sources))

    def speaks_of(self, resource: Resource, needed: Action, source: Address | None) -> bool:
        """Whether it states something about any one of these actions on the resource, from this address."""
        return self.resource.covers(resource) and self._has(needed) and self.is_from(source)

    def _has(self, needed: Action) -> bool:
        if not self.granted:
            return False
        return bool(needed & Action.ANY or self.granted & (needed | Action.ALL))

    def is_from(self, source: Address | None) -> bool:
        """Whether it holds for requests from this address; None: its text is not an address."""
        if not self.sources:
            return True
        if source is None or source.version not in self.ranges:
            return False
        (firsts, lasts), number = self.ranges[source.version], int(source)
        at = bisect_right(firsts, number) - 1
        return at >= 0 and number <= lasts[at]

    @property
    def rank(self) -> tuple[bool, int, int, bool]:
        """Of the entries that speak of a request, the one of the lowest rank decides."""
        resource = self.resource
        length = len(resource.name) if resource.pattern is Pattern.PREFIXED else 0
        is_any = resource.type is ResourceType.ANY
        return (is_any, resource.pattern.value, -length, self.decision is Decision.ALLOW)


def _ranges(sources: Iterable[str]) -> dict[int, tuple[list[int], list[int]]]:
    networks = [network for source in sources if (network := network_of(source)) is not None]
    found: dict[int, tuple[list[int], list[int]]] = {}
    for network in sorted(networks, key=lambda each: (int(each.network_address), each.prefixlen)):
        firsts, lasts = found.setdefault(network.version, ([], []))
        first, last = int(network.network_address), int(network.broadcast_address)
        if not lasts or first > lasts[-1]:  # otherwise it is in the one before: blocks are nested or disjoint
            firsts.append(first)
            lasts.append(last)
    return found


@dataclass(frozen=True, slots=True)
class Acl:
    """What a user may do: policy type → entries. Changes make a new one."""

    user: str
    policies: dict[PolicyType, tuple[PolicyEntry, ...]]

    @property
    def subject(self) -> str:
        return USER_PREFIX + self.user

    @property
    def entries(self) -> int:
        return sum(map(len, self.policies.values()))

    def updated(self, policies: Iterable[tuple[PolicyType, tuple[PolicyEntry, ...]]]) -> "Acl":
        """Entries of an equal resource are replaced, others are added."""
        merged = {kind: list(entries) for kind, entries in self.policies.items()}
        for kind, entries in policies:
            if kind not in merged:
                merged[kind] = list(entries)
                continue
            for entry in entries:
                _put(merged[kind], entry)
        return replace(self, policies={kind: tuple(entries) for kind, entries in merged.items()})

    def without(self, kind: PolicyType, resource: Resource) -> "Acl":
        """Without the first entry of the resource; a policy without entries goes as well."""
        left = list(self.policies.get(kind, ()))
        for n, entry in enumerate(left):
            if entry.resource == resource:
                del left[n]
                break
        policies = {each: entries for each, entries in self.policies.items() if each is not kind}
        if left:
            policies[kind] = tuple(left)
        return replace(self, policies=policies)


def _put(entries: list[PolicyEntry], entry: PolicyEntry) -> None:
    for n, known in enumerate(entries):
        if known.resource == entry.resource:
            entries[n] = entry
            return
    entries.append(entry)


@dataclass(frozen=True, slots=True)
class User:
    """The password is needed as it is: it is the key of each request's signature."""

    name: str
    password: str = field(repr=False)
    type: UserType = UserType.NORMAL
    status: UserStatus = UserStatus.ENABLE

    @property
    def is_super(self) -> bool:
        return self.type is UserType.SUPER

    @property
    def is_enabled(self) -> bool:
        return self.status is UserStatus.ENABLE


def user_of(subject: str) -> str | None:
    """The name in a subject's text, `User:name`; None: it names no user."""
    kind, _, name = subject.partition(":")
    return name if kind.lower() == USER_PREFIX[:-1].lower() else None
