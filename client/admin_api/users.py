"""Users, for operators: users and rules of Apache's brokers from 5.3 on and of FireArrow's, at all masters of a
cluster.

`Users(admin)` uses a started Admin. Nothing is cached. Loop thread.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from firearrow._native.protocol.access_model import (
    Acl,
    Action,
    Decision,
    PolicyEntry,
    PolicyType,
    Resource,
    UserStatus,
    UserType,
)
from firearrow._native.wire.codes import RequestCode
from firearrow.client.admin_api.admin import Admin
from firearrow.client.base.errors import ClientError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class UserRecord:
    """A user at one broker, without its password."""

    broker_name: str
    name: str
    type: UserType
    status: UserStatus


class Users:
    """All methods: BrokerError, TransportError, ClientError. Changes are made at all masters (of one cluster)."""

    def __init__(self, admin: Admin, cluster: str | None = None) -> None:
        self._admin = admin
        self._cluster = cluster

    async def create(self, name: str, password: str, kind: UserType = UserType.NORMAL) -> None:
        info = {"username": name, "password": password, "userType": kind.value}
        await self._change(RequestCode.AUTH_CREATE_USER, {"username": name}, info)

    async def change(
        self,
        name: str,
        *,
        password: str | None = None,
        kind: UserType | None = None,
        status: UserStatus | None = None,
    ) -> None:
        """What is None stays as it is."""
        info = {"username": name, "password": password, "userType": kind, "userStatus": status}
        given = {key: value for key, value in info.items() if value is not None}
        await self._change(RequestCode.AUTH_UPDATE_USER, {"username": name}, given)

    async def delete(self, name: str) -> None:
        """The user's rules go as well."""
        await self._change(RequestCode.AUTH_DELETE_USER, {"username": name})

    async def list_users(self, part: str = "") -> list[UserRecord]:
        """Users whose names contain the text, of all masters."""
        found: list[UserRecord] = []
        none: list[UserRecord] = []
        for broker, address in (await self._masters()).items():
            answer = await self._admin.calls.ask(
                address, RequestCode.AUTH_LIST_USER, {"filter": part} if part else {}
            )
            found += _read(answer.body, partial(_users, broker), none)
        return found

    async def get(self, name: str) -> dict[str, UserRecord | None]:
        """The user at each master; None: there is none of this name."""
        found: dict[str, UserRecord | None] = {}
        for broker, address in (await self._masters()).items():
            answer = await self._admin.calls.ask(address, RequestCode.AUTH_GET_USER, {"username": name})
            found[broker] = _read(answer.body, partial(_user, broker), None)
        return found

    async def acls(self, name: str) -> dict[str, Acl]:
        """What the user may do, by master."""
        found = {}
        for broker, address in (await self._masters()).items():
            answer = await self._admin.calls.ask(
                address, RequestCode.AUTH_GET_ACL, {"subject": f"User:{name}"}
            )
            found[broker] = _read(answer.body, partial(_acl, name), Acl(name, {}))
        return found

    async def grant(
        self,
        name: str,
        resource: Resource,
        actions: Iterable[Action],
        *,
        decision: Decision = Decision.ALLOW,
        sources: Iterable[str] = (),
    ) -> None:
        """Set the user's entry for the resource."""
        entry: dict[str, object] = {
            "resource": str(resource),
            "actions": [action.text for action in actions],
            "decision": decision.value,
        }
        if sources := list(sources):
            entry["sourceIps"] = sources
        body = {"subject": f"User:{name}", "policies": [{"policyType": "Custom", "entries": [entry]}]}
        await self._change(RequestCode.AUTH_UPDATE_ACL, {"subject": f"User:{name}"}, body)

    async def revoke(self, name: str, resource: Resource | None = None) -> None:
        """Delete the user's entry for the resource, or all."""
        ext = {"subject": f"User:{name}"}
        if resource is not None:
            ext |= {"resource": str(resource), "policyType": "Custom"}
        await self._change(RequestCode.AUTH_DELETE_ACL, ext)

    async def _masters(self) -> dict[str, str]:
        masters = await self._admin.calls.masters(self._cluster)
        if not masters:
            raise ClientError("the name server knows no broker")
        return masters

    async def _change(self, code: RequestCode, ext: dict[str, str], body: object = None) -> None:
        raw = b"" if body is None else json.dumps(body).encode()
        await self._admin.calls.ask_masters(code, ext, raw, self._cluster)


def _read(body: bytes, reader: Callable[[Any], T], default: T) -> T:
    """`default`: without a body, or `null`. ClientError: it is none that a broker sends."""
    try:
        value = json.loads(body) if body else None
        return default if value is None else reader(value)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ClientError(f"the answer cannot be read: {error}") from error


def _users(broker: str, infos: list[dict[str, Any]]) -> list[UserRecord]:
    return [_user(broker, info) for info in infos]


def _user(broker: str, info: dict[str, Any]) -> UserRecord:
    kind, status = UserType.named(info.get("userType")), UserStatus.named(info.get("userStatus"))
    return UserRecord(broker, str(info["username"]), kind or UserType.NORMAL, status or UserStatus.ENABLE)


def _acl(name: str, info: dict[str, Any]) -> Acl:
    policies: dict[PolicyType, tuple[PolicyEntry, ...]] = {}
    for policy in info.get("policies") or ():
        kind = PolicyType.named(policy.get("policyType")) or PolicyType.CUSTOM
        entries = (_entry(entry) for entry in policy.get("entries") or ())
        policies[kind] = policies.get(kind, ()) + tuple(entry for entry in entries if entry is not None)
    return Acl(name, policies)


def _entry(info: dict[str, Any]) -> PolicyEntry | None:
    resource = Resource.parse(str(info.get("resource", "")))
    decision = Decision.named(info.get("decision"))
    if resource is None or decision is None:
        return None
    actions = tuple(action for action in map(Action.named, info.get("actions") or ()) if action is not None)
    sources = tuple(str(each) for each in info.get("sourceIps") or () if each)
    return PolicyEntry(resource, actions, decision, sources)
