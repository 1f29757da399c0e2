"""AccountAccess: requests are checked by the accounts of `plain_acl.yml`, as in brokers up to 5.2. Loop thread."""

import asyncio
from collections.abc import Callable

from firearrow._native.fastpath.access_check import AccessCheck
from firearrow._native.fastpath.fast_connection import FastConnection
from firearrow._native.store.message_store import MessageStore
from firearrow.broker.auth.access import Access, LogIn
from firearrow.broker.auth.audit_log import AuditLog
from firearrow.broker.auth.body_rights import fast_needs
from firearrow.broker.auth.broker_facts import StoreFacts
from firearrow.broker.auth.failed_logins import FailedLogins
from firearrow.broker.auth.plain_access import PlainAccess
from firearrow.broker.auth.plain_accounts import Account
from firearrow.broker.auth.plain_files import PlainFiles
from firearrow.broker.base import auth_options
from firearrow.broker.base.clock import Clock
from firearrow.broker.base.file_reads import FileReader
from firearrow.broker.base.options import Options
from firearrow.broker.base.peer import HeldAccess, Peer


class AccountAccess(Access):
    """The accounts of `plain_acl.yml`, as in brokers up to 5.2. StartError: the file cannot be used."""

    def __init__(
        self, options: Options, store: MessageStore, clock: Clock, count_login: Callable[[Peer, str], None]
    ) -> None:
        self._count_login = count_login
        self.audit = AuditLog.open(options.audit_log, clock.now_ms) if options.audit_log else None
        self.fast_check: AccessCheck = AccessCheck(self._allows, authorization=True, each=True)
        self.plain = PlainAccess(
            plain_files(options),
            StoreFacts(options.cluster_name, store, names_lmqs=options.multi_dispatch),
            FailedLogins(lambda: clock.monotonic_ms() / 1000),
            self.audit,
            self._logged_in,
            self._changed,
        )
        self.held = HeldAccess(self.plain.check_held, self.plain.may_send)
        self.plain.load()
        self._files = FileReader("files with accounts", self.plain.files.read_changed, self.plain.take)
        self.check = self.plain.check

    def _changed(self) -> None:
        self.fast_check.forget()
        self.held.forget()

    def _logged_in(self, peer: Peer, account: Account) -> None:
        self._count_login(peer, account.access_key)
        if isinstance(peer, FastConnection):
            self.fast_check.log_in(peer, account.access_key, account.secret_key, 0)

    def _allows(self, user: str, topic: str, group: str | None, _: bytes) -> bool:
        return self.plain.allows(user, fast_needs(topic, group))

    @property
    def log_in(self) -> LogIn | None:
        return self.plain.watcher_fault

    def read_again(self) -> None:
        self._files.start(asyncio.get_running_loop())

    def close(self) -> None:
        if self.audit is not None:
            self.audit.close()


def plain_files(options: Options) -> PlainFiles:
    """Those that the options name, not loaded yet."""
    path = auth_options.plain_acl_path(options)
    assert path is not None
    path = path.absolute()
    return PlainFiles(path, auth_options.plain_acl_folder(path))
