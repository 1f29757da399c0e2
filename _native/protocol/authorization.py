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
_EACH = -1
"""Every action."""


class Need(NamedTuple):
    """A right that a request needs: any one of `actions` on the resource."""

    resource: Resource
    actions: Action


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


class _Said(list[int]):
    """The actions that entries of one resource deny, and those that they allow."""

    def __init__(self) -> None:
        super().__init__((0, 0))

    def add(self, entry: PolicyEntry) -> None:
        self[entry.decision is Decision.ALLOW] |= int(entry.granted)

    def allows(self, wanted: int) -> bool | None:
        """None: the entries do not speak of these actions."""
        if self[0] & wanted:
            return False
        return True if self[1] & wanted else None


class _Prefixes:
    """Of the prefixes of a name that speak of the actions, the longest one decides."""

    def __init__(self, said: dict[str, _Said]) -> None:
        self._said = said
        self._sorted = sorted(said)
        self._chains: list[tuple[str, ...]] = []
        """For each of `_sorted`, those that it begins with, the shortest first, and itself."""
        self._found: dict[tuple[str, int], bool | None] = {}
        chain: list[str] = []
        for prefix in self._sorted:
            while chain and not prefix.startswith(chain[-1]):
                chain.pop()
            chain.append(prefix)
            self._chains.append(tuple(chain))

    def allows(self, name: str, wanted: int) -> bool | None:
        """None: no entry speaks of it."""
        chain = self._chains[at] if (at := bisect_right(self._sorted, name) - 1) >= 0 else ()
        count = bisect_left(chain, True, key=lambda prefix: not name.startswith(prefix))
        if not count:
            return None
        key = chain[count - 1], wanted
        if key not in self._found:
            spoken = (self._said[prefix].allows(wanted) for prefix in reversed(chain[:count]))
            self._found[key] = next((allowed for allowed in spoken if allowed is not None), None)
        return self._found[key]


class _Policy:
    """The entries of a policy by their resources, from the most specific one to `*`."""

    def __init__(self, entries: Iterable[PolicyEntry]) -> None:
        self._literals: dict[ResourceType, dict[str, _Said]] = {}
        prefixes: dict[ResourceType, dict[str, _Said]] = {}
        self._kinds: dict[ResourceType, _Said] = {}
        anything: dict[tuple[bool, int, int], _Said] = {}
        for entry in entries:
            resource = entry.resource
            if resource.type is ResourceType.ANY:
                said = anything.setdefault(entry.rank[:3], _Said())
            elif resource.pattern is Pattern.ANY:
                said = self._kinds.setdefault(resource.type, _Said())
            else:
                by_name = self._literals if resource.pattern is Pattern.LITERAL else prefixes
                said = by_name.setdefault(resource.type, {}).setdefault(resource.name, _Said())
            said.add(entry)
        self._prefixes = {kind: _Prefixes(said) for kind, said in prefixes.items()}
        self._anything = [said for _, said in sorted(anything.items())]

    def allows(self, kind: ResourceType, name: str, wanted: int) -> bool | None:
        """None: no entry speaks of it."""
        said = self._literals.get(kind, {}).get(name)
        if said is not None and (allowed := said.allows(wanted)) is not None:
            return allowed
        prefixes = self._prefixes.get(kind)
        if prefixes is not None and (allowed := prefixes.allows(name, wanted)) is not None:
            return allowed
        said = self._kinds.get(kind)
        if said is not None and (allowed := said.allows(wanted)) is not None:
            return allowed
        return next((found for each in self._anything if (found := each.allows(wanted)) is not None), None)


class Rights:
    """What an acl allows from one address. Any number of entries takes no longer."""

    def __init__(self, acl: Acl | None, source: Address | None) -> None:
        policies = {} if acl is None else acl.policies
        self._policies = [
            _Policy(entry for entry in policies[kind] if entry.is_from(source))
            for kind in (PolicyType.CUSTOM, PolicyType.DEFAULT)
            if kind in policies
        ]

    def reason(self, need: Need) -> str | None:
        """Why it is not allowed; None: it is."""
        resource, actions = need
        wanted = int(actions)
        wanted = _EACH if wanted & Action.ANY.value else wanted | Action.ALL.value
        for policy in self._policies:
            allowed = policy.allows(resource.type, resource.name, wanted)
            if allowed is not None:
                return None if allowed else DENIED
        return NO_POLICY


def refusal_text(user: str, need: Need, address: str, reason: str) -> str:
    """The remark of a refused request, in Apache's words."""
    return f"User:{user} has no permission to access {need.resource} from {address}, {reason}"
