"""The accounts of `plain_acl.yml`, by which brokers from 4.4 to 5.2 check requests (`aclEnable`). Pure functions.

Names, forms and the order of checks are those of Apache's PlainPermissionManager.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntFlag
from functools import cache

from firearrow._native.protocol import name_rules
from firearrow._native.protocol.access_model import (
    Action,
    Decision,
    Pattern,
    PolicyEntry,
    PolicyType,
    Resource,
    ResourceType,
    User,
    UserType,
)
from firearrow._native.protocol.policy_decision import OF_MESSAGE, Need
from firearrow.broker.auth import plain_yaml
from firearrow.broker.auth.bodies import Policies
from firearrow.broker.auth.remote_addresses import RemoteAddresses

NAME_CHARS_MIN = 7
"""Of access keys and secret keys."""
ACCOUNTS_MAX = 10_000
PERMISSIONS_MAX = 10_000
"""Topics, and groups, that an account names."""


class Permission(IntFlag):
    DENY = 1
    PUB = 4
    SUB = 8


_PERMISSIONS = {
    "PUB": Permission.PUB,
    "SUB": Permission.SUB,
    "PUB|SUB": Permission.PUB | Permission.SUB,
    "SUB|PUB": Permission.PUB | Permission.SUB,
    "DENY": Permission.DENY,
}
_FIELDS = {
    name.lower(): name
    for name in (
        "accessKey",
        "secretKey",
        "whiteRemoteAddress",
        "admin",
        "defaultTopicPerm",
        "defaultGroupPerm",
        "topicPerms",
        "groupPerms",
    )
}
"""Of an account, by what fastjson compares; other fields mean nothing, as up to 4.9."""


@dataclass(frozen=True, slots=True)
class Account:
    access_key: str
    secret_key: str = field(repr=False)
    white: RemoteAddresses
    admin: bool
    default_topic: Permission
    default_group: Permission
    topics: Mapping[str, Permission]
    groups: Mapping[str, Permission]

    def fault(self, need: Need) -> str | None:
        """Why the account may not; None: it may."""
        kind, name = need.resource.type, need.resource.name
        if kind is ResourceType.CLUSTER:
            return None if self.admin or need.actions & Action.GET else "Need admin permission"
        if self.admin and not self.topics and not self.groups:
            return None
        wanted = _wanted(need.actions)
        if not wanted:
            return None if self.admin else "Need admin permission"
        named, default = (
            (self.groups, self.default_group)
            if kind is ResourceType.GROUP
            else (self.topics, self.default_topic)
        )
        if not _grants(named.get(name, default), wanted):
            what = f"{kind.value.lower()}:{name}" if need.is_named else OF_MESSAGE
            return f"No default permission for {what}"
        return None


@cache  # operations of flags take 1 µs each
def _wanted(actions: Action) -> Permission:
    wanted = Permission(0)
    if actions & Action.PUB:
        wanted |= Permission.PUB
    if actions & Action.SUB:
        wanted |= Permission.SUB
    if not wanted and actions & Action.GET:
        wanted = Permission.PUB | Permission.SUB
    return wanted


@cache
def _grants(owned: Permission, wanted: Permission) -> bool:
    return not owned & Permission.DENY and bool(owned & wanted)


@dataclass(frozen=True, slots=True)
class PlainAcl:
    """One `plain_acl.yml`."""

    white: tuple[RemoteAddresses, ...]
    accounts: Mapping[str, Account]

    @staticmethod
    def parse(text: str) -> "PlainAcl":
        """As `of_document`, of a file's text."""
        return PlainAcl.of_document(plain_yaml.parse(text))

    @staticmethod
    def of_document(document: object) -> "PlainAcl":
        """ValueError: what is wrong, without secrets."""
        if not isinstance(document, dict):
            raise ValueError("the file is not a mapping with accounts")
        accounts: dict[str, Account] = {}
        listed = _items(document.get("accounts"), "accounts")
        if len(listed) > ACCOUNTS_MAX:
            raise ValueError(f"{len(listed)} accounts, at most {ACCOUNTS_MAX} are allowed")
        for n, raw in enumerate(listed, 1):
            account = _account(raw, n)
            if account.access_key in accounts:
                raise ValueError(f"account {n} has the accessKey of another one: {account.access_key}")
            accounts[account.access_key] = account
        white = _items(document.get("globalWhiteRemoteAddresses"), "globalWhiteRemoteAddresses")
        return PlainAcl(tuple(RemoteAddresses.parse(_text(each, "an address")) for each in white), accounts)


def is_trace(need: Need) -> bool:
    """Message traces may be written by every account."""
    return need.actions == Action.PUB and need.resource.name == name_rules.TRACE_TOPIC


def permission(text: str) -> Permission:
    """Of an unknown text: DENY, as in Apache."""
    return _PERMISSIONS.get(text.strip(), Permission.DENY)


def migrated(account: Account) -> tuple[User, Policies]:
    """The user with the policies of an account, as Apache's AuthMigrator makes them. White addresses are left out, and
    permissions of names with a `*` at the end: here they meant no topic or group, as resources they mean many."""
    kind = UserType.SUPER if account.admin else UserType.NORMAL
    custom = [
        _entry(resource(name), granted)
        for resource, named in ((Resource.topic, account.topics), (Resource.group, account.groups))
        for name, granted in named.items()
        if not name.endswith("*")
    ]
    defaults = [
        _entry(Resource(of, "", Pattern.ANY), granted)
        for of, granted in (
            (ResourceType.TOPIC, account.default_topic),
            (ResourceType.GROUP, account.default_group),
        )
    ]
    policies: Policies = [(PolicyType.CUSTOM, tuple(custom))] if custom else []
    policies.append((PolicyType.DEFAULT, tuple(defaults)))
    return User(account.access_key, account.secret_key, kind), policies


def _entry(resource: Resource, granted: Permission) -> PolicyEntry:
    if granted & Permission.DENY:
        return PolicyEntry(resource, (Action.ALL,), Decision.DENY)
    named = ((Permission.PUB, Action.PUB), (Permission.SUB, Action.SUB))
    actions = tuple(action for each, action in named if granted & each)
    return PolicyEntry(resource, actions, Decision.ALLOW)


def _account(raw: object, number: int) -> Account:
    if not isinstance(raw, dict):
        raise ValueError(f"account {number} is not a mapping")

    def text(name: str) -> str:
        return _text(raw.get(name, ""), f"account {number}: {name}")

    for name in raw:
        known = _FIELDS.get(name.replace("_", "").replace("-", "").lower(), name)
        if name != known:  # a broker of Apache's up to 4.9 reads it, a later one does not start
            raise ValueError(f"account {number}: {name[:64]} must be written {known}")
    key, secret = text("accessKey"), text("secretKey")
    for name, value in (("accessKey", key), ("secretKey", secret)):
        if len(value) < NAME_CHARS_MIN:
            raise ValueError(f"account {number}: {name} must have {NAME_CHARS_MIN} characters or more")
    if (admin := text("admin").lower()) not in ("true", "false", ""):
        raise ValueError(f"account {number}: admin must be true or false")
    return Account(
        key,
        secret,
        RemoteAddresses.parse(text("whiteRemoteAddress")),
        admin == "true",
        permission(text("defaultTopicPerm")),
        permission(text("defaultGroupPerm")),
        _permissions(raw.get("topicPerms"), key),
        _permissions(raw.get("groupPerms"), key),
    )


def _text(raw: object, what: str) -> str:
    if isinstance(raw, dict | list):
        raise ValueError(f"{what} must be a text, not a {'list' if isinstance(raw, list) else 'mapping'}")
    return str(raw)


def _permissions(raw: object, key: str) -> dict[str, Permission]:
    listed = _items(raw, "permissions")
    if len(listed) > PERMISSIONS_MAX:
        raise ValueError(f"account {key}: {len(listed)} permissions, at most {PERMISSIONS_MAX} are allowed")
    found = {}
    for each in listed:
        name, equals, text = _text(each, f"account {key}: a permission").partition("=")
        if not equals or not name.strip() or text.strip() not in _PERMISSIONS:
            raise ValueError(f"account {key}: {str(each)[:64]!r} must be NAME=PUB, SUB, PUB|SUB or DENY")
        found[name.strip()] = permission(text)
    return found


def _items(raw: object, what: str) -> list[object]:
    if raw in (None, ""):
        return []
    if not isinstance(raw, list):
        raise ValueError(f"{what} is not a list")
    return raw
