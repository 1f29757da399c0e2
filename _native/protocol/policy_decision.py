"""Authorization: whether a user may do something on a resource from an address. Pure functions.

The rules are those of Apache's AclAuthorizationHandler; tests/interop compares them with its class. `decide` reads all
entries of an acl, and names the one that decides. `Rights` decides the same without reading them all.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from firearrow._native.protocol.access_model import (
    Acl,
    Action,
    Address,
    Decision,
    Pattern,
    PolicyEntry,
    PolicyType,
    Resource,
    ResourceType,
)

NO_POLICY = "no matched policies."
DENIED = "the decision is deny."
OF_MESSAGE = "the topic of this message"
_ALL, _ANY = Action.ALL.value, Action.ANY.value
_EACH = -1
"""The bits of every action."""


class Need(NamedTuple):
    """A right that a request needs: any one of `actions` on the resource. `is_named`: the request names it, so that a
    refusal may name it as well; else it is the topic of a message that the request names by its offset or id."""

    resource: Resource
    actions: Action
    is_named: bool = True


class Verdict(NamedTuple):
    """`entry`: what decided; None: nothing speaks of the request."""

    allowed: bool
    entry: PolicyEntry | None

    @property
    def reason(self) -> str:
        return NO_POLICY if self.entry is None else DENIED


def decide(acl: Acl | None, need: Need, source: Address | None) -> Verdict:
    """Of the entries that speak of the request, the most specific one decides: those of the Custom policy, else
    those of the Default policy."""
    if acl is None:
        return Verdict(False, None)
    for kind in (PolicyType.CUSTOM, PolicyType.DEFAULT):
        entry = _decisive(acl.policies.get(kind, ()), need, source)
        if entry is not None:
            return Verdict(entry.decision is Decision.ALLOW, entry)
    return Verdict(False, None)


def _decisive(entries: Iterable[PolicyEntry], need: Need, source: Address | None) -> PolicyEntry | None:
    speaking = (entry for entry in entries if entry.speaks_of(need.resource, need.actions, source))
    return min(speaking, key=lambda entry: entry.rank, default=None)


class _Decisions:
    """The actions that the entries of one resource deny, and those that they allow: bits of `Action`."""

    __slots__ = ("allowed", "denied")

    def __init__(self) -> None:
        self.allowed = self.denied = 0

    def add(self, entry: PolicyEntry) -> None:
        if entry.decision is Decision.ALLOW:
            self.allowed |= int(entry.granted)
        else:
            self.denied |= int(entry.granted)

    def allows(self, wanted: int) -> bool | None:
        """Whether they allow one of the actions `wanted`, and deny none. None: they do not speak of them."""
        if self.denied & wanted:
            return False
        return True if self.allowed & wanted else None


class _Prefixes:
    """Of the prefixes of a name that speak of the actions, the longest one decides."""

    def __init__(self, decisions: dict[str, _Decisions]) -> None:
        self._decisions = decisions
        self._sorted = sorted(decisions)
        self._shorter: dict[str, tuple[str, ...]] = {}
        """The others that a prefix begins with, the shortest first; prefixes of the same ones share the tuple."""
        self._found: dict[tuple[str, int], bool | None] = {}
        """What was decided for names whose longest prefix this is."""
        chain: tuple[str, ...] = ()
        for prefix in self._sorted:
            while chain and not prefix.startswith(chain[-1]):
                chain = self._shorter[chain[-1]]
            self._shorter[prefix] = chain
            chain = (*chain, prefix)

    def allows(self, name: str, wanted: int) -> bool | None:
        """None: no entry speaks of it."""
        prefix = self._longest_of(name)
        if prefix is None:
            return None
        key = prefix, wanted
        if key not in self._found:
            each = (self._decisions[one].allows(wanted) for one in (prefix, *reversed(self._shorter[prefix])))
            self._found[key] = next((allowed for allowed in each if allowed is not None), None)
        return self._found[key]

    def _longest_of(self, name: str) -> str | None:
        """Nothing that sorts between a prefix of the name and the name begins otherwise, so the last one before the
        name is the longest, or begins with it."""
        at = bisect_right(self._sorted, name) - 1
        if at < 0:
            return None
        last = self._sorted[at]
        if name.startswith(last):
            return last
        shorter = self._shorter[last]
        count = bisect_left(shorter, True, key=lambda prefix: not name.startswith(prefix))
        return shorter[count - 1] if count else None


class _Policy:
    """The entries of a policy by their resources, from the most specific one to `*`."""

    def __init__(self, entries: Iterable[PolicyEntry]) -> None:
        self._literals: dict[ResourceType, dict[str, _Decisions]] = {}
        prefixes: dict[ResourceType, dict[str, _Decisions]] = {}
        self._types: dict[ResourceType, _Decisions] = {}
        anything: dict[tuple[bool, int, int], _Decisions] = {}
        for entry in entries:
            resource = entry.resource
            if resource.type is ResourceType.ANY:
                decisions = anything.setdefault(entry.rank[:3], _Decisions())
            elif resource.pattern is Pattern.ANY:
                decisions = self._types.setdefault(resource.type, _Decisions())
            else:
                by_name = self._literals if resource.pattern is Pattern.LITERAL else prefixes
                decisions = by_name.setdefault(resource.type, {}).setdefault(resource.name, _Decisions())
            decisions.add(entry)
        self._prefixes = {kind: _Prefixes(by_name) for kind, by_name in prefixes.items()}
        self._anything = [decisions for _, decisions in sorted(anything.items())]

    def allows(self, kind: ResourceType, name: str, wanted: int) -> bool | None:
        """None: no entry speaks of it."""
        literals = self._literals.get(kind)
        if literals is not None and (decisions := literals.get(name)) is not None:
            allowed = decisions.allows(wanted)
            if allowed is not None:
                return allowed
        prefixes = self._prefixes.get(kind)
        if prefixes is not None and (allowed := prefixes.allows(name, wanted)) is not None:
            return allowed
        decisions = self._types.get(kind)
        if decisions is not None and (allowed := decisions.allows(wanted)) is not None:
            return allowed
        for decisions in self._anything:
            if (allowed := decisions.allows(wanted)) is not None:
                return allowed
        return None


class Rights:
    """What an acl allows from one address. The time of a decision hardly depends on the number of entries."""

    def __init__(self, acl: Acl | None, source: Address | None) -> None:
        policies = {} if acl is None else acl.policies
        self._policies = [
            _Policy(entry for entry in policies[kind] if entry.is_from(source))
            for kind in (PolicyType.CUSTOM, PolicyType.DEFAULT)
            if kind in policies
        ]

    def reason(self, need: Need) -> str | None:
        """Why it is not allowed; None: it is."""
        resource, bits = need.resource, int(need.actions)
        wanted = _EACH if bits & _ANY else bits | _ALL
        for policy in self._policies:
            allowed = policy.allows(resource.type, resource.name, wanted)
            if allowed is not None:
                return None if allowed else DENIED
        return NO_POLICY


def refusal_text(user: str, need: Need, address: str, reason: str) -> str:
    """The remark of a refused request, in Apache's words. It names nothing that the request does not name."""
    what = need.resource if need.is_named else OF_MESSAGE
    return f"User:{user} has no permission to access {what} from {address}, {reason}"
