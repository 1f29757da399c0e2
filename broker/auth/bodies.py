"""UserInfo and AclInfo, the JSON objects of bodies and of our two files, and users and acls. Pure functions.

Errors are Refusals with Apache's codes and remarks.
"""

from collections.abc import Iterable
from typing import Any

from firearrow._native.protocol.access_model import (
    Acl,
    Action,
    Decision,
    PolicyEntry,
    PolicyType,
    Resource,
    User,
    UserStatus,
    UserType,
    network_of,
)
from firearrow._native.wire.codes import ResponseCode
from firearrow.broker.base.errors import Refusal
from firearrow.broker.tables import json_fields

BODY_BYTES_MAX = 1 << 20
ENTRIES_MAX = 1000
"""Policy entries of one user."""
SOURCES_MAX = 256
"""Source addresses of an entry."""
TEXT_CHARS_MAX = 255
PASSWORD_CHARS_MAX = 1024

Policies = list[tuple[PolicyType, tuple[PolicyEntry, ...]]]


def no_permission(remark: str) -> Refusal:
    """What Apache answers for its AuthenticationException and AuthorizationException."""
    return Refusal(ResponseCode.NO_PERMISSION, remark)


def user_info(user: User, *, with_password: bool = True) -> dict[str, str]:
    """The UserInfo of a user. In a body, only a Super user sees passwords."""
    info = {"userStatus": user.status.value, "userType": user.type.value, "username": user.name}
    return info | {"password": user.password} if with_password else info


def read_user(name: str, info: json_fields.Members) -> User:
    """A user to create. Refusal."""
    if not name.strip():
        raise no_permission("username can not be blank")
    password = info.get("password")
    if not isinstance(password, str) or not password.strip():
        raise no_permission("password can not be blank")
    kind = UserType.named(info.get("userType")) or UserType.NORMAL
    return bounded(User(name, password, kind, UserStatus.named(info.get("userStatus")) or UserStatus.ENABLE))


def bounded(user: User) -> User:
    """The user, if the file could be read with it. Refusal."""
    _bound(user.name, TEXT_CHARS_MAX, "username")
    _bound(user.password, PASSWORD_CHARS_MAX, "password")
    return user


def read_change(user: User, info: json_fields.Members) -> User:
    """The user with the password, type and status that the UserInfo names. Refusal."""
    password = info.get("password")
    if not isinstance(password, str) or not password.strip():
        password = user.password
    _bound(password, PASSWORD_CHARS_MAX, "password")
    kind, status = UserType.named(info.get("userType")), UserStatus.named(info.get("userStatus"))
    return User(user.name, password, kind or user.type, status or user.status)


def acl_info(acl: Acl) -> dict[str, object]:
    policies = [_policy_info(kind, entries) for kind, entries in acl.policies.items()]
    return {"policies": policies, "subject": acl.subject}


def _policy_info(kind: PolicyType, entries: Iterable[PolicyEntry]) -> dict[str, object]:
    return {"entries": [_entry_info(entry) for entry in entries], "policyType": kind.value}


def _entry_info(entry: PolicyEntry) -> dict[str, object]:
    info: dict[str, object] = {
        "actions": [action.text for action in entry.actions],
        "decision": entry.decision.value,
        "resource": str(entry.resource),
    }
    return info | {"sourceIps": list(entry.sources)} if entry.sources else info


def read_policies(info: json_fields.Members) -> Policies:
    """The policies of an AclInfo. Refusal; ValueError: it has another form."""
    found: Policies = []
    for raw in json_fields.items(info.get("policies"), "policies"):
        policy = json_fields.members(raw, "a policy")
        entries = json_fields.items(policy.get("entries"), "entries")
        if not entries:
            continue
        if len(entries) > ENTRIES_MAX:
            raise ValueError(f"{len(entries)} policy entries, at most {ENTRIES_MAX} are allowed")
        kind = PolicyType.named(policy.get("policyType")) or PolicyType.CUSTOM
        found.append((kind, tuple(_entry(json_fields.members(entry, "an entry")) for entry in entries)))
    if not found:
        raise no_permission("The policies is empty.")
    return found


def _entry(info: json_fields.Members) -> PolicyEntry:
    text = info.get("resource")
    resource = Resource.parse(text) if isinstance(text, str) else None
    if resource is None:
        raise no_permission("The resource is null.")
    _bound(resource.name, TEXT_CHARS_MAX, "resource")
    names = json_fields.items(info.get("actions"), "actions")[: len(Action)]
    actions = tuple(action for action in map(Action.named, names) if action is not None)
    if not actions:
        raise no_permission("The actions is empty.")
    if Action.ANY in actions:
        raise no_permission("The actions can not be Any.")
    sources = _sources(info)
    decision = Decision.named(info.get("decision"))
    if decision is None:
        raise no_permission("The decision is null or illegal.")
    return PolicyEntry(resource, actions, decision, sources)


def _sources(info: json_fields.Members) -> tuple[str, ...]:
    """Addresses of an entry. `mqadmin createAcl` without -i sends one null."""
    given: list[Any] = json_fields.items(info.get("sourceIps"), "sourceIps")
    if len(given) > SOURCES_MAX:
        raise ValueError(f"{len(given)} source addresses, at most {SOURCES_MAX} are allowed")
    if given == [None]:
        return ()
    for source in given:
        if not isinstance(source, str) or not source.strip():
            raise no_permission("The source ip is empty.")
        if network_of(source) is None:
            raise no_permission("The source ip is invalid.")
    return tuple(given)


def _bound(text: str, chars_max: int, what: str) -> None:
    if len(text) > chars_max:
        raise no_permission(f"the {what} has {len(text)} characters, at most {chars_max} are allowed")
