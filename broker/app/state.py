"""State: what the broker knows besides its log: the tables with their files, users and rules, quotas, statistics, and
the name server of this process. Loop thread.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from firearrow.broker.app.foundation import Foundation
from firearrow.broker.app.name_server import NameServer
from firearrow.broker.auth.access import Access
from firearrow.broker.auth.tables import USERS_FILE
from firearrow.broker.base import auth_options
from firearrow.broker.base.memory_limits import Shares
from firearrow.broker.base.options import PROXIES_KEY
from firearrow.broker.base.peer import Peer
from firearrow.broker.base.stats import Stats
from firearrow.broker.context.broker_context import BrokerContext, Tables
from firearrow.broker.context.tables import make_tables
from firearrow.broker.quotas.quota_check import QuotaCheck
from firearrow.broker.quotas.quota_table import QUOTAS_FILE, QuotaTable
from firearrow.broker.services.registration import Connect
from firearrow.broker.tables.clients import SUBSCRIPTIONS_WEIGHT_MAX
from firearrow.broker.tables.config_file import ConfigFile
from firearrow.broker.tables.naming_options import NamingOptions

log = logging.getLogger("firearrow.auth")

KV_FILE = "kvConfig.json"


@dataclass(frozen=True, eq=False, repr=False)
class State:
    """`connect` opens a connection to another server, on which our requests are signed if there are keys."""

    tables: Tables
    access: Access
    quotas: QuotaCheck
    stats: Stats
    name_server: NameServer
    connect: Connect

    def messages_sent(self) -> int:
        self.stats.gather()
        return self.stats.put_times

    def set_memory(self, shares: Shares) -> None:
        self.tables.clients.weight_max = min(SUBSCRIPTIONS_WEIGHT_MAX, shares.subscriptions // 100)


def load_state(base: Foundation) -> State:
    """Load the files of `config/`. StartError: one cannot be used."""
    options, saver, clock = base.options, base.saver, base.clock
    folder = Path(options.store_root) / "config"
    tables = make_tables(options, clock, saver, base.journal)
    base.config.listen(tables.configure)
    stats = Stats(options.cluster_name, clock.now_ms())
    quotas = QuotaTable(partial(saver.schedule, "quotas"))
    saver.load("quotas", ConfigFile(folder / QUOTAS_FILE, strict=True), quotas, make=False)
    quota_check = QuotaCheck(quotas)
    base.server.limit_addresses(quota_check.admits)
    access = _make_access(base, quota_check.logged_in)
    base.files.callback(access.close)
    connect = partial(base.server.connect, sign=access.sign)
    naming_options = NamingOptions({PROXIES_KEY: options.proxies})
    name_server = NameServer(clock, naming_options, partial(saver.schedule, "kv"), connect)
    saver.load("kv", ConfigFile(folder / KV_FILE), name_server.kv, make=False)
    state = State(tables, access, quota_check, stats, name_server, connect)
    base.memory.listen(state.set_memory)
    return state


def _make_access(base: Foundation, count_login: Callable[[Peer, str], None]) -> Access:
    """What the options ask for. `count_login(peer, user)`: a user logged in on a connection; a Refusal ends it.
    StartError."""
    options, store, clock = base.options, base.store, base.clock
    folder = Path(options.store_root) / "config"
    if options.authentication:
        from firearrow.broker.auth.broker_facts import StoreFacts  # noqa: PLC0415 (most brokers check nothing)
        from firearrow.broker.auth.user_access import UserAccess  # noqa: PLC0415

        facts = StoreFacts(options.cluster_name, store, names_lmqs=options.multi_dispatch)
        return UserAccess(options, facts, folder, base.saver, clock, count_login)
    if options.plain_acl:
        from firearrow.broker.auth.account_access import AccountAccess  # noqa: PLC0415

        return AccountAccess(options, store, clock, count_login)
    for path, switch in (
        (folder / USERS_FILE, "authenticationEnabled"),
        (auth_options.plain_acl_path(options), "aclEnable"),
    ):
        if path is not None and path.exists():
            log.warning("%s has no effect, and anyone may do everything: set %s=true", path, switch)
    return Access()


def make_context(base: Foundation, state: State) -> BrokerContext:
    return BrokerContext(
        base.loop,
        base.store,
        base.write_batch,
        base.journal,
        base.saver,
        state.tables,
        base.config,
        base.clock,
        state.stats,
        state.quotas,
        state.access.held,
        base.lifecycle.restart_for,
        base.memory,
    )
