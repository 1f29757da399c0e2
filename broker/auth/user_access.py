"""UserAccess: requests are checked by users and rules, which are kept in files (Apache 5.3 and later). Loop thread."""

import logging
import socket
from collections.abc import Callable
from pathlib import Path

from firearrow._native.fastpath.access_check import AccessCheck
from firearrow._native.fastpath.fast_connection import FastConnection
from firearrow._native.protocol.access_model import User, UserType
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.auth import bodies
from firearrow.broker.auth.access import Access, LogIn
from firearrow.broker.auth.access_control import AccessControl, AccessSettings
from firearrow.broker.auth.audit_log import AuditLog
from firearrow.broker.auth.body_rights import fast_needs
from firearrow.broker.auth.failed_logins import FailedLogins
from firearrow.broker.auth.request_rights import Facts
from firearrow.broker.auth.signatures import sign
from firearrow.broker.auth.tables import ACLS_FILE, USERS_FILE, AclTable, UserTable
from firearrow.broker.base import auth_options
from firearrow.broker.base.clock import Clock
from firearrow.broker.base.errors import Refusal, StartError
from firearrow.broker.base.options import Options
from firearrow.broker.base.peer import HeldAccess, Peer
from firearrow.broker.services.table_saver import TableSaver
from firearrow.broker.tables.config_file import ConfigFile

log = logging.getLogger("firearrow.auth")

SECRET_MODE = 0o600
IPV4_HOST_BYTES, PORT_BYTES = 8, 4


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
        self.users = UserTable(lambda: self._changed("users"))
        self.acls = AclTable(lambda: self._changed("acls"))

        def now() -> float:
            return clock.monotonic_ms() / 1000

        settings = AccessSettings(
            options.authorization,
            auth_options.codes("authenticationWhitelist", options.authentication_whitelist),
            auth_options.codes("authorizationWhitelist", options.authorization_whitelist),
            auth_options.stateful_s(options),
        )
        self.control = AccessControl(
            settings,
            self.users,
            self.acls,
            facts,
            FailedLogins(now),
            self.audit,
            now,
            self._logged_in,
        )
        self.held = HeldAccess(self.control.check_held, self.control.may_send)
        self.fast_check = AccessCheck(
            self._allows, authorization=options.authorization, each=settings.stateful_s == 0
        )
        refuse_lost_users(folder)
        for name, file, table in (("users", USERS_FILE, self.users), ("acls", ACLS_FILE, self.acls)):
            saver.load(name, ConfigFile(folder / file, mode=SECRET_MODE, strict=True), table)
        try:
            self._create_initial(options)
            if options.migrate_accounts:
                self._migrate(options)
        except Refusal as refusal:
            raise StartError(
                f"a user that the configuration names cannot be created: {refusal.remark}"
            ) from None
        if not any(user.is_super and user.is_enabled for user in self.users):
            log.warning(
                "there is no Super user that is enabled, so users and rules cannot be created: set "
                "initAuthenticationUser to a name that no user has"
            )
        self.check = self.control.check

    def _create_initial(self, options: Options) -> None:
        """Create the users that the options name, if there are none of their names: later changes of their passwords
        are made with updateUser."""
        for found in (auth_options.initial_user(options), self._inner):
            if found is not None and self.users.get(found.name) is None:
                self._create(bodies.bounded(User(found.name, found.password, UserType.SUPER)))
                log.warning(
                    "the Super user %s was created with its password in the configuration, as there was no user of "
                    "this name: change the password with updateUser",
                    found.name,
                )

    def _migrate(self, options: Options) -> None:
        """Create a user with its rules for each account of `plain_acl.yml` whose user does not exist."""
        from firearrow.broker.auth.account_access import plain_files  # noqa: PLC0415 (rarely asked for)
        from firearrow.broker.auth.plain_accounts import migrated  # noqa: PLC0415

        files = plain_files(options)
        files.load()
        for account in files.acl.accounts.values():
            if self.users.get(account.access_key) is None:
                user, policies = migrated(account)
                bodies.bounded(user)
                self.acls.update(user.name, policies)  # first, as it may be too large
                self._create(user)

    def _create(self, user: User) -> None:
        """Create a user that the configuration asks for."""
        self.users.create(user)
        if self.audit is not None:
            self.audit.change("createUser", None, "", target=bodies.user_info(user, with_password=False))

    def _changed(self, table: str) -> None:
        self.control.forget()
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
        return self.control.allows(
            user, fast_needs(topic, group), socket.inet_ntop(family, host[:-PORT_BYTES])
        )

    @property
    def log_in(self) -> LogIn | None:
        return self.control.watcher_fault

    def sign(self, request: RemotingCommand) -> None:
        if self._inner is not None:
            sign(request, self._inner.name, self._inner.password)

    def close(self) -> None:
        if self.audit is not None:
            self.audit.close()


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
