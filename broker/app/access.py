"""Access: builds what checks requests: users and rules with their files, the check itself, the handlers for them.

Loop thread.
"""

import asyncio
import logging
import socket
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from firearrow._native.fastpath.access_check import AccessCheck
from firearrow._native.fastpath.fast_connection import FastConnection
from firearrow._native.protocol.access_model import Action, User, UserType
from firearrow._native.protocol.authorization import Need
from firearrow._native.store.message_store import MessageStore
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.auth import bodies
from firearrow.broker.auth.access_control import AccessControl, AccessSettings
from firearrow.broker.auth.audit_log import AuditLog
from firearrow.broker.auth.body_needs import consumed, sent
from firearrow.broker.auth.facts import StoreFacts
from firearrow.broker.auth.failed_logins import FailedLogins
from firearrow.broker.auth.plain_access import PlainAccess
from firearrow.broker.auth.plain_accounts import Account, migrated
from firearrow.broker.auth.plain_files import PlainFiles
from firearrow.broker.auth.rules import Facts
from firearrow.broker.auth.signatures import sign
from firearrow.broker.auth.tables import ACLS_FILE, USERS_FILE, AclTable, UserTable
from firearrow.broker.base import auth_options
from firearrow.broker.base.clock import Clock
from firearrow.broker.base.errors import Refusal, StartError
from firearrow.broker.base.file_reads import FileReader
from firearrow.broker.base.options import Options
from firearrow.broker.base.peer import Address, HeldAccess, Peer, Routes
from firearrow.broker.handlers.acls import AclsHandler
from firearrow.broker.handlers.plain_acl import PlainAclHandler
from firearrow.broker.handlers.users import UsersHandler
from firearrow.broker.net.dispatch import Check
from firearrow.broker.net.tls import ServerTls
from firearrow.broker.services.table_saver import TableSaver
from firearrow.broker.tables.config_file import ConfigFile

if TYPE_CHECKING:
    from firearrow.broker.http.pages import LogIn

log = logging.getLogger("firearrow.auth")

SECRET_MODE = 0o600
LOOPBACK = ("127.0.0.1", "::1")
IPV4_HOST_BYTES, PORT_BYTES = 8, 4


class Access:
    """`check`: the dispatchers call it before each request; None: everyone may do everything."""

    check: Check | None = None
    audit: AuditLog | None = None
    fast_check: AccessCheck | None = None
    """The same for plain sends and pulls of connections that have logged in."""

    def __init__(self) -> None:
        self.held = HeldAccess()
        """Checks held requests again."""

    def routes(self) -> list[Routes]:
        return []

    def sign(self, request: RemotingCommand) -> None:
        """Sign a request of the broker to another server, if it has keys."""

    @property
    def log_in(self) -> "LogIn | None":
        """Who may watch the broker by HTTP; None: everyone."""
        return None

    def read_again(self) -> None:
        """Read files again that others change. Called every few seconds."""

    def close(self) -> None: ...


class UserAccess(Access):
    """Authentication and authorization of Apache 5.3 and later. `folder`: of the files. StartError: a file cannot be
    used."""

    def __init__(
        self,
        options: Options,
        facts: Facts,
        folder: Path,
        saver: TableSaver,
        clock: Clock,
        count_login: Callable[[Peer, str], None],
    ) -> None:
        self._saver = saver
        self._count_login = count_login
        self._inner = auth_options.inner_credentials(options)
        self.audit = AuditLog.open(options.audit_log, clock.now_ms) if options.audit_log else None
        self._users = UserTable(lambda: self._changed("users"))
        self._acls = AclTable(lambda: self._changed("acls"))

        def now() -> float:
            return clock.monotonic_ms() / 1000

        settings = AccessSettings(
            options.authorization,
            auth_options.codes("authenticationWhitelist", options.authentication_whitelist),
            auth_options.codes("authorizationWhitelist", options.authorization_whitelist),
            auth_options.stateful_s(options),
        )
        self._control = AccessControl(
            settings,
            self._users,
            self._acls,
            facts,
            FailedLogins(now),
            self.audit,
            now,
            self._logged_in,
        )
        self.held = HeldAccess(self._control.check_held, self._control.may_send)
        self.fast_check = AccessCheck(
            self._allows, authorization=options.authorization, each=settings.stateful_s == 0
        )
        refuse_lost_users(folder)
        for name, file, table in (("users", USERS_FILE, self._users), ("acls", ACLS_FILE, self._acls)):
            saver.load(name, ConfigFile(folder / file, mode=SECRET_MODE, strict=True), table)
        try:
            self._create_initial(options)
            if options.migrate_accounts:
                self._migrate(options)
        except Refusal as refusal:
            raise StartError(
                f"a user that the configuration names cannot be created: {refusal.remark}"
            ) from None
        if not any(user.is_super and user.is_enabled for user in self._users):
            log.warning(
                "there is no Super user that is enabled, so users and rules cannot be created: set "
                "initAuthenticationUser to a name that no user has"
            )
        self.check = self._control.check

    def _create_initial(self, options: Options) -> None:
        """Create the users that the options name, if there are none of their names: later changes of their passwords
        are made with updateUser."""
        for found in (auth_options.initial_user(options), self._inner):
            if found is not None and self._users.get(found.name) is None:
                self._create(bodies.bounded(User(found.name, found.password, UserType.SUPER)))
                log.warning(
                    "the Super user %s was created with its password in the configuration, as there was no user of "
                    "this name: change the password with updateUser",
                    found.name,
                )

    def _migrate(self, options: Options) -> None:
        """Create a user with its rules for each account of `plain_acl.yml` whose user does not exist."""
        files = _plain_files(options)
        files.load()
        for account in files.acl.accounts.values():
            if self._users.get(account.access_key) is None:
                user, policies = migrated(account)
                bodies.bounded(user)
                self._acls.update(user.name, policies)  # first, as it may be too large
                self._create(user)

    def _create(self, user: User) -> None:
        """Create a user that the configuration asks for."""
        self._users.create(user)
        if self.audit is not None:
            self.audit.change("createUser", None, "", target=bodies.user_info(user, with_password=False))

    def _changed(self, table: str) -> None:
        self._control.forget()
        self.held.forget()
        if self.fast_check is not None:
            self.fast_check.forget()
        self._saver.schedule(table)

    def _logged_in(self, peer: Peer, user: User, until: float) -> None:
        self._count_login(peer, user.name)
        if self.fast_check is not None and isinstance(peer, FastConnection):
            self.fast_check.log_in(peer, user.name, user.password, until)

    def _allows(self, user: str, topic: str, group: str | None, host: bytes) -> bool:
        family = socket.AF_INET if len(host) == IPV4_HOST_BYTES else socket.AF_INET6
        return self._control.allows(
            user, fast_needs(topic, group), socket.inet_ntop(family, host[:-PORT_BYTES])
        )

    def routes(self) -> list[Routes]:
        return [
            UsersHandler(self._users, self._acls, self._control, self.audit).routes(),
            AclsHandler(self._users, self._acls, self.audit).routes(),
        ]

    @property
    def log_in(self) -> "LogIn | None":
        return self._control.watcher_fault

    def sign(self, request: RemotingCommand) -> None:
        if self._inner is not None:
            sign(request, self._inner.name, self._inner.password)

    def close(self) -> None:
        if self.audit is not None:
            self.audit.close()


class AccountAccess(Access):
    """The accounts of `plain_acl.yml`, as in brokers up to 5.2. StartError: the file cannot be used."""

    def __init__(
        self, options: Options, store: MessageStore, clock: Clock, count_login: Callable[[Peer, str], None]
    ) -> None:
        self._count_login = count_login
        self.audit = AuditLog.open(options.audit_log, clock.now_ms) if options.audit_log else None
        self.fast_check: AccessCheck = AccessCheck(self._allows, authorization=True, each=True)
        self._plain = PlainAccess(
            _plain_files(options),
            StoreFacts(options.cluster_name, store, names_lmqs=options.multi_dispatch),
            FailedLogins(lambda: clock.monotonic_ms() / 1000),
            self.audit,
            self._logged_in,
            self._changed,
        )
        self.held = HeldAccess(self._plain.check_held, self._plain.may_send)
        self._plain.load()
        self._files = FileReader("files with accounts", self._plain.files.read_changed, self._plain.take)
        self.check = self._plain.check
        self._handler = PlainAclHandler(self._plain.files, options, clock, self.audit, self._plain.forget)

    def _changed(self) -> None:
        self.fast_check.forget()
        self.held.forget()

    def _logged_in(self, peer: Peer, account: Account) -> None:
        self._count_login(peer, account.access_key)
        if isinstance(peer, FastConnection):
            self.fast_check.log_in(peer, account.access_key, account.secret_key, 0)

    def _allows(self, user: str, topic: str, group: str | None, _: bytes) -> bool:
        return self._plain.allows(user, fast_needs(topic, group))

    def routes(self) -> list[Routes]:
        return [self._handler.routes()]

    @property
    def log_in(self) -> "LogIn | None":
        return self._plain.watcher_fault

    def read_again(self) -> None:
        self._files.start(asyncio.get_running_loop())

    def close(self) -> None:
        if self.audit is not None:
            self.audit.close()


def _plain_files(options: Options) -> PlainFiles:
    path = auth_options.plain_acl_path(options)
    assert path is not None
    path = path.absolute()
    return PlainFiles(path, auth_options.plain_acl_folder(path))


def refuse_lost_users(folder: Path) -> None:
    """StartError: the file of users is missing, and others show that there were users: with the first password of the
    configuration alone, the broker would be open to those who know it."""
    users = folder / USERS_FILE
    others = [f"{USERS_FILE}.bak", ACLS_FILE, f"{ACLS_FILE}.bak"]
    found = [name for name in others if (folder / name).exists()]
    if found and not users.exists():
        raise StartError(
            f"{users} is missing, but {', '.join(found)} show that there were users: restore it from {USERS_FILE}.bak "
            f"or a backup; to start with the users of the configuration alone, also delete {', '.join(found)}"
        )


def fast_needs(topic: str, group: str | None) -> list[Need]:
    """Of a send to the topic, or a pull of it for the group."""
    return list(sent(topic) if group is None else consumed(group, topic, Action.SUB))


def make_access(
    options: Options,
    store: MessageStore,
    saver: TableSaver,
    clock: Clock,
    count_login: Callable[[Peer, str], None],
) -> Access:
    """What the options ask for. `count_login(peer, user)`: a user logged in on a connection; a Refusal ends it.
    StartError."""
    if options.authentication:
        facts = StoreFacts(options.cluster_name, store, names_lmqs=options.multi_dispatch)
        folder = Path(options.store_root) / "config"
        return UserAccess(options, facts, folder, saver, clock, count_login)
    if options.plain_acl:
        return AccountAccess(options, store, clock, count_login)
    for path, switch in (
        (Path(options.store_root, "config", USERS_FILE), "authenticationEnabled"),
        (auth_options.plain_acl_path(options), "aclEnable"),
    ):
        if path is not None and path.exists():
            log.warning("%s has no effect, and anyone may do everything: set %s=true", path, switch)
    return Access()


def warn_of_open_ports(addresses: list[Address], may: str, *, users: bool, tls: ServerTls) -> None:
    """Report what others may do at those ports that they can reach, and how to change that; nothing with TLS and
    users."""
    opened = [f"{host}:{port}" for host, port in addresses if host not in LOOPBACK]
    warnings = []
    if not users:
        warnings.append(
            f"any client that reaches these ports can {may}; to require users, set authenticationEnabled, "
            "authorizationEnabled and initAuthenticationUser (docs/SECURITY.md)"
        )
    if tls.listening is None:
        warnings.append(
            "others can read messages on the way; to encrypt, `firearrow tls init`, then add --tls-cert and "
            "--tls-key as it prints"
        )
    if opened and warnings:
        log.warning("%s: %s", ", ".join(opened), ". And ".join(warnings))
