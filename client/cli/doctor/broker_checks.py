"""Checks of brokers: addresses, permission, readiness, threads, tables, store, versions. Pure."""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from firearrow._native.store_checks.findings import Kind, Severity
from firearrow.client.base.times import age_text
from firearrow.client.cli.doctor.checks import Found, NotChecked, Trouble, finds, shortened
from firearrow.client.cli.doctor.facts import Broker, Facts, host_of, is_loopback
from firearrow.client.cli.doctor.machine_checks import of_machines
from firearrow.client.cli.formats import FIRST_VERSION, real, version_text
from firearrow.client.cli.output import bytes_text

NOTE, WARNING, CRITICAL = Severity
SAVE_SLOW_MS, SAVE_LATE_MS = 10_000, 60_000
BACKUP_AGE_MS = 7 * 86_400_000
UNSAVED_AGE_MS = 86_400_000
"""A store without a backup is worth a warning once its messages are older."""
BEHIND_BYTES = 64 << 20

UNREACHABLE = Trouble(
    CRITICAL,
    "its address {address} cannot be reached from here: {fault}",
    "name servers give this address to every client: none of them can send or read",
    "start the broker; if it runs, look into its log (without file descriptors or threads it takes no connection), or "
    "give it an address that clients reach: `firearrow broker --advertise HOST:PORT` (Apache: brokerIP1)",
)
LOOPBACK_ADVERTISED = Trouble(
    WARNING,
    "it listens on {listens}, and advertises {advertised}",
    "clients on other hosts get an address that is their own host",
    "start it with --advertise and an address that clients reach",
)
LISTENS_ON_LOOPBACK = Trouble(
    CRITICAL,
    "it listens on {listens} only, and advertises {advertised}",
    "no client can connect to the address that clients are given, unless something forwards it",
    "start it with --listen 0.0.0.0:PORT",
)
LOOPBACK_OF_NAME_SERVER = Trouble(
    CRITICAL,
    "it listens on {listens} only, and its name server is {name_server}",
    "clients on other hosts reach the name server, but not the broker",
    "start it with --listen 0.0.0.0:PORT",
)
TAKEN_OUT = Trouble(
    WARNING,
    "brokerPermission is {permission}",
    "clients cannot {forbidden} it: it was taken out, and not put back",
    "`firearrow config set brokerPermission=6`",
)
THREAD_FAULT = Trouble(
    CRITICAL,
    "{fault}",
    "without its threads a broker cannot keep what it acknowledges: it refuses messages once one has ended or the log "
    "is not synced",
    "look into its log and for errors of its disk (`dmesg`), then restart it",
)
UNREADY = Trouble(
    CRITICAL,
    "it is not ready: {reason}",
    "clients that need it wait or fail",
    "do what its reason says; `curl http://HOST:PORT/readyz` shows it as well",
)
LATE_SAVE = Trouble(
    WARNING,
    "the {table} file {found}",
    "changes of topics and groups are answered when they are written; until then offsets are only in the journal",
    "free space, or a faster disk; fewer groups with offsets of deleted topics make the file smaller",
    CRITICAL,
)
OLD_BACKUP = Trouble(
    WARNING,
    "{found}",
    "a broker has one copy of its messages: a broken disk loses them",
    "`firearrow store backup {folder} TO`, also while the broker runs; best daily by cron",
)
KILLED = Trouble(
    WARNING,
    "its broker was killed, or its machine lost power: the file abort is there",
    "the next start repairs what the stop left half done; with ASYNC_FLUSH the last messages may be lost",
    "`firearrow store verify {folder}`, then start the broker",
)
DAMAGES: dict[str, Trouble] = {
    kind: Trouble(
        kind.severity,
        f"{kind}: {{text}}",
        kind.meaning,
        f"`firearrow store verify {{folder}}` lists all damage; `firearrow store repair {{folder}}`: {kind.repair}",
    )
    for kind in Kind
}
LATE_DISPATCH = Trouble(
    WARNING,
    "{bytes} of the log are not in the queues yet",
    "messages are stored, but no consumer gets them before they are in a queue",
    "look at the disk and the CPU of its machine; it catches up by itself",
)
OLD_CLIENTS = Trouble(
    WARNING,
    "clients older than {version}: {clients}",
    "{fault} ({reference})",
    "give them client {version} or later",
)
HOLE = Trouble(
    CRITICAL,
    "Apache RocketMQ {version}",
    "{fault}",
    "Apache RocketMQ {fixed} or later, or FireArrow, which has no such command",
)


# ---- addresses ----


@finds(UNREACHABLE)
def unreachable_brokers(facts: Facts) -> Found:
    """Addresses that brokers advertise and that cannot be reached from here"""
    for broker in facts.brokers.values():
        if broker.fault is not None:
            yield UNREACHABLE.of(f"broker {broker.name}", address=broker.address, fault=broker.fault)


@finds(LOOPBACK_ADVERTISED, LISTENS_ON_LOOPBACK, LOOPBACK_OF_NAME_SERVER)
@of_machines("listen", "advertised")
def listen_addresses(facts: Facts, broker: Broker, machine: Any) -> Found:  # noqa: ANN401
    """Listen and advertised addresses that a client on another host cannot reach"""
    subject, listens = f"broker {broker.name}", [host_of(each) for each in machine["listen"]]
    advertised = host_of(machine["advertised"] or "")
    outside = [each.address for each in facts.name_servers if each.is_resolved and not each.is_loopback]
    if not all(is_loopback(each) for each in listens):
        if advertised and is_loopback(advertised):
            yield LOOPBACK_ADVERTISED.of(subject, listens=listens[0], advertised=machine["advertised"])
    elif advertised and not is_loopback(advertised):
        yield LISTENS_ON_LOOPBACK.of(subject, listens=listens[0], advertised=machine["advertised"])
    elif outside:
        yield LOOPBACK_OF_NAME_SERVER.of(subject, listens=listens[0], name_server=outside[0])


@finds(TAKEN_OUT)
def broker_permission(facts: Facts) -> Found:
    """Brokers that let no client send or read"""
    if facts.store is not None:
        yield NotChecked("a store folder does not say it")
    for broker in facts.asked_brokers():
        permission = broker.number("brokerPermission", 6)
        if permission & 6 != 6:
            lacks = [word for bit, word in ((4, "read from"), (2, "send to")) if not permission & bit]
            yield TAKEN_OUT.of(f"broker {broker.name}", permission=permission, forbidden=" or ".join(lacks))


# ---- the process ----


@finds(THREAD_FAULT)
def service_threads(facts: Facts) -> Found:
    """Threads of brokers that ended or hang"""
    for broker, status in _reporting(facts):
        for thread in status.get("threads", ()):
            if thread["fault"]:
                yield THREAD_FAULT.of(f"broker {broker.name}", fault=thread["fault"])


@finds(UNREADY)
def unready_brokers(facts: Facts) -> Found:
    """Brokers that do not serve clients"""
    for broker, status in _reporting(facts):
        unready = status.get("unready")
        if unready and all(unready != thread["fault"] for thread in status.get("threads", ())):
            yield UNREADY.of(f"broker {broker.name}", reason=unready)


@finds(LATE_SAVE)
def table_saves(facts: Facts) -> Found:
    """Config files of brokers that are written late, slowly or not at all"""
    for broker, status in _reporting(facts):
        for save in status.get("saves", ()):
            if save["fault"]:
                found = f"cannot be written: {save['fault']}"
            elif save["lateMs"] > SAVE_LATE_MS:
                found = f"should have been written {age_text(save['lateMs'])} ago"
            elif save["lastMs"] > SAVE_SLOW_MS:
                found = f"takes {age_text(save['lastMs'])} to write"
            else:
                continue
            yield LATE_SAVE.of(
                f"broker {broker.name}",
                is_worst=save["lateMs"] > SAVE_LATE_MS,
                table=save["table"],
                found=found,
            )


def _reporting(facts: Facts) -> Iterator[tuple[Broker, Any]]:
    """FireArrow's brokers, with what they report of themselves."""
    return ((broker, broker.status) for broker in facts.asked_brokers() if broker.status is not None)


# ---- the store ----


@finds(OLD_BACKUP)
@of_machines("lastBackup")
def last_backup(facts: Facts, broker: Broker, machine: Any) -> Found:  # noqa: ANN401
    """Age of the last backup"""
    backup = machine.get("lastBackup")
    oldest_ms = max(int(real(broker.runtime.get("earliestMessageTimeStamp")) or 0), 0)
    if backup is not None and facts.now_ms - backup["madeMs"] > BACKUP_AGE_MS:
        found = f"the last backup is {age_text(facts.now_ms - backup['madeMs'])} old ({backup['target']})"
    elif backup is None and oldest_ms and facts.now_ms - oldest_ms > UNSAVED_AGE_MS:
        found = f"no backup is known, and its messages go back {age_text(facts.now_ms - oldest_ms)}"
    else:
        return
    folder = (machine.get("store") or {}).get("folder", "DIR")
    yield OLD_BACKUP.of(f"broker {broker.name}", found=found, folder=folder)


@finds(LATE_DISPATCH)
def dispatch_behind(facts: Facts) -> Found:
    """Stored messages that no consumer can see yet"""
    for broker in facts.asked_brokers():
        bytes_left = real(broker.runtime.get("dispatchBehindBytes")) or 0
        if bytes_left > BEHIND_BYTES:
            yield LATE_DISPATCH.of(f"broker {broker.name}", bytes=bytes_text(bytes_left))


@finds(KILLED)
def unclean_stop(facts: Facts) -> Found:
    """A store that was not closed"""
    store = facts.store
    if store is not None and store.killed and not store.running:
        yield KILLED.of(f"store {store.folder}", folder=store.folder)


@finds(*DAMAGES.values())
def store_damage(facts: Facts) -> Found:
    """Damage of the log, queues, index and tables of a store folder"""
    store = facts.store
    if store is None:
        return
    for damage in store.damages:
        yield DAMAGES[damage.kind].of(f"store {store.folder}", text=damage.text, folder=store.folder)
    if store.left_out:
        yield NotChecked(
            f"{store.left_out}; `firearrow store verify {store.folder}` looks at everything", "the rest"
        )


# ---- versions ----


class KnownBug(NamedTuple):
    """A bug of the clients of a language before a version (an ordinal of MQVersion)."""

    language: str
    before: int
    what: str
    reference: str


CLIENT_FAULTS = (
    KnownBug(
        "JAVA",
        FIRST_VERSION + 180,  # V4_9_0
        "a consumer that cannot read its offset in time begins at the queue's first message, and commits that",
        "apache/rocketmq#2708",
    ),
)
BROKER_FAULTS = (
    (
        (5, 1, 0),
        (5, 0, 0),
        "CVE-2023-33246: any client that reaches it can run commands on its machine",
        "5.1.1",
    ),
    (
        (4, 9, 5),
        (0, 0, 0),
        "CVE-2023-33246: any client that reaches it can run commands on its machine",
        "4.9.6",
    ),
)
"""Last version with the fault, first one, what, and the version that fixes it."""


@finds(OLD_CLIENTS)
def client_versions(facts: Facts) -> Found:
    """Clients of versions with known faults"""
    if facts.store is not None:
        yield NotChecked("a stopped store has no clients")
        return
    named = [(f"group {group.name}", each) for group in facts.plain_groups() for each in group.members or ()]
    for fault in CLIENT_FAULTS:
        found: dict[str, list[str]] = {}
        for subject, client in named:
            if client.language == fault.language and client.version < fault.before:
                found.setdefault(subject, []).append(f"{client.client_id} ({version_text(client.version)})")
        for subject, clients in sorted(found.items()):
            yield OLD_CLIENTS.of(
                subject,
                version=version_text(fault.before),
                clients=shortened(clients, 3),
                fault=fault.what,
                reference=fault.reference,
            )


@finds(HOLE)
def broker_versions(facts: Facts) -> Found:
    """Brokers of versions with known holes"""
    for broker in facts.asked_brokers():
        found = re.fullmatch(r"V(\d+)_(\d+)_(\d+)", broker.runtime.get("brokerVersionDesc", ""))
        if found is None or broker.machine is not None:
            continue
        version = tuple(map(int, found.groups()))
        for last, first, what, fixed in BROKER_FAULTS:
            if first <= version <= last:
                yield HOLE.of(
                    f"broker {broker.name}", version=".".join(map(str, version)), fault=what, fixed=fixed
                )
                break


CHECKS = (
    unreachable_brokers,
    listen_addresses,
    broker_permission,
    service_threads,
    unready_brokers,
    table_saves,
    last_backup,
    dispatch_behind,
    unclean_stop,
    store_damage,
    client_versions,
    broker_versions,
)
