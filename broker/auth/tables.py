"""UserTable and AclTable: the users and what they may do, with their files `users.json` and `acls.json`.

Apache keeps them in RocksDB; these files are ours, in the form of its bodies. They hold passwords as they are, which
signatures need, so only their owner may read them. A change calls `changed()`: the file has to be written, and what was
decided before is void. Loop thread; `to_json` may run in another one.
"""

from collections.abc import Callable, Iterator

from firearrow._native.protocol import fastjson
from firearrow._native.protocol.access_model import (
    Acl,
    PolicyType,
    Resource,
    User,
    UserStatus,
    UserType,
    user_of,
)
from firearrow.broker.auth import bodies
from firearrow.broker.auth.bodies import ENTRIES_MAX, Policies, no_permission
from firearrow.broker.base.errors import Refusal
from firearrow.broker.tables import json_fields

USERS_MAX = 10_000
"""Users, and so acls."""
USERS_FILE, ACLS_FILE = "users.json", "acls.json"


class UserTable:
    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._users: dict[str, User] = {}

    def __iter__(self) -> Iterator[User]:
        """In the order of their names."""
        return iter([user for _, user in sorted(self._users.items())])

    def __len__(self) -> int:
        return len(self._users)

    def get(self, name: str) -> User | None:
        return self._users.get(name)

    def is_last_super(self, user: User) -> bool:
        """Whether no other enabled Super user exists: without one, no user could create or change users."""
        others = (each for each in self._users.values() if each.name != user.name)
        is_one = user.is_super and user.is_enabled
        return is_one and not any(each.is_super and each.is_enabled for each in others)

    def create(self, user: User) -> None:
        """Refusal: the name is taken, or there are too many."""
        if user.name in self._users:
            raise no_permission("The user is existed")
        if len(self._users) >= USERS_MAX:
            raise no_permission(f"there are {USERS_MAX} users already: delete one first")
        self._put(user)

    def replace(self, user: User) -> None:
        """Change a user that exists."""
        self._put(user)

    def delete(self, name: str) -> None:
        users = dict(self._users)
        if users.pop(name, None) is not None:
            self._users = users
            self._changed()

    def to_json(self) -> bytes:
        return fastjson.pretty({"users": [bodies.user_info(user) for user in self]})

    def load(self, text: bytes) -> None:
        """Replace the table by the file's users. ValueError: nothing changed."""
        fresh: dict[str, User] = {}
        for info in _listed(text, "users"):
            name = json_fields.text(info, "username")
            for member, allowed in (("userStatus", UserStatus), ("userType", UserType)):
                if info.get(member) is not None and allowed.named(info[member]) is None:
                    raise ValueError(f"user {name[:64]!r}: {member} must be {' or '.join(allowed)}")
            try:
                fresh[name] = bodies.read_user(name, info)
            except Refusal as refusal:
                raise ValueError(f"user {name[:64]!r}: {refusal.remark}") from None
        self._users = fresh

    def _put(self, user: User) -> None:
        self._users = {**self._users, user.name: user}
        self._changed()


class AclTable:
    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._acls: dict[str, Acl] = {}

    def __iter__(self) -> Iterator[Acl]:
        """In the order of their users' names."""
        return iter([acl for _, acl in sorted(self._acls.items())])

    def get(self, user: str) -> Acl | None:
        return self._acls.get(user)

    def update(self, user: str, policies: Policies) -> None:
        """Create the user's acl, or merge the policies into it. Refusal: it would be too large."""
        known = self._acls.get(user)
        acl = Acl(user, {}).updated(policies) if known is None else known.updated(policies)
        if acl.entries > ENTRIES_MAX:
            raise no_permission(
                f"{acl.entries} policy entries of one user, at most {ENTRIES_MAX} are allowed"
            )
        self._put(acl)

    def delete(self, user: str) -> None:
        acls = dict(self._acls)
        if acls.pop(user, None) is not None:
            self._acls = acls
            self._changed()

    def delete_entry(self, user: str, kind: PolicyType, resource: Resource) -> None:
        """Delete one entry; an acl without entries goes as well."""
        acl = self._acls[user].without(kind, resource)
        if acl.policies:
            self._put(acl)
        else:
            self.delete(user)

    def to_json(self) -> bytes:
        return fastjson.pretty({"acls": [bodies.acl_info(acl) for acl in self]})

    def load(self, text: bytes) -> None:
        """Replace the table by the file's acls. ValueError: nothing changed."""
        fresh: dict[str, Acl] = {}
        for info in _listed(text, "acls"):
            subject = json_fields.text(info, "subject")
            user = user_of(subject)
            if user is None:
                raise ValueError(f"subject {subject[:64]!r} is not a user: write User:NAME")
            try:
                fresh[user] = Acl(user, {}).updated(bodies.read_policies(info))
            except Refusal as refusal:
                raise ValueError(f"acl of {subject[:64]!r}: {refusal.remark}") from None
        self._acls = fresh

    def _put(self, acl: Acl) -> None:
        self._acls = {**self._acls, acl.user: acl}
        self._changed()


def _listed(text: bytes, name: str) -> list[json_fields.Members]:
    """The objects in the file's only list. ValueError."""
    document = json_fields.members(fastjson.loads(text), "the file")
    if document.get(name) is None:
        raise ValueError(f"{name} is missing")
    found = json_fields.items(document[name], name)
    if len(found) > USERS_MAX:
        raise ValueError(f"{len(found)} {name}, at most {USERS_MAX} are allowed")
    return [json_fields.members(each, f"a member of {name}") for each in found]
