"""Authorization: whether a user may do something on a resource from an address. Pure functions.

The rules are those of Apache's AclAuthorizationHandler; tests/auth compares them with its class.
"""

from collections.abc import Iterable
from typing import NamedTuple

from firearrow._native.protocol.access_model import (
    Acl,
    Action,
    Address,
    Decision,
    PolicyEntry,
    PolicyType,
    Resource,
)

NO_POLICY = "no matched policies."
DENIED = "the decision is deny."


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


def refusal_text(user: str, need: Need, address: str, reason: str) -> str:
    """The remark of a refused request, in Apache's words."""
    return f"User:{user} has no permission to access {need.resource} from {address}, {reason}"
