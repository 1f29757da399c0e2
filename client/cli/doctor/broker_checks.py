"""Checks of brokers and their machine: addresses, disk, flush, files, memory, clock, backup; versions. Pure."""

import ipaddress
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from firearrow._native.store_checks.findings import Finding, Severity
from firearrow.client.cli.doctor.checks import Found, NotChecked, check_of, counted, shortened
from firearrow.client.cli.doctor.facts import Broker, Facts
from firearrow.client.cli.formats import FIRST_VERSION, real, version_text
from firearrow.client.cli.output import bytes_text
from firearrow.client.cli.times import age_text

LEVELS = (
    ("diskMaxUsedSpaceRatio", 75, (10, 95)),
    ("diskSpaceCleanForciblyRatio", 85, (30, 85)),
    ("diskSpaceWarningLevelRatio", 90, (35, 90)),
)
"""Key, default and range of the shares of a disk from which on the broker acts."""
SEGMENT_BYTES = 1 << 30
INODES_MIN = 1000
FLUSH_INTERVAL_MS = 5_000
"""What ASYNC_FLUSH may lose in a power cut, by default half a second."""
SYNC_SLOW_MS = {"SYNC_FLUSH": 50.0, "ASYNC_FLUSH": 500.0}
SYNC_TOO_FAST_MS = 0.02
"""No device with a volatile cache has written anything to its medium by then."""
FILES_SHARE, FILES_SHARE_FULL = 0.7, 0.9
MEMORY_SHARE = 0.9
MEMORY_MIN = 64 << 20
"""28 MiB for the process, the rest for connections and for messages that are on their way."""
SAVE_SLOW_MS, SAVE_LATE_MS = 10_000, 60_000
CLOCK_MS = 5_000
BACKUP_AGE_MS = 7 * 86_400_000
UNSAVED_AGE_MS = 86_400_000
"""A store without a backup is worth a warning once its messages are older."""
BEHIND_BYTES = 64 << 20
IN_MEMORY = ("tmpfs", "ramfs")
CAPACITY = re.compile(r"Total : ([\d.]+) (\w+), Free : ([\d.]+) (\w+)\.")
UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


Look = Callable[[Facts, Broker, Any], Found]


def of_machines(*needs: str) -> Callable[[Look], Callable[[Facts], Found]]:
    """A check of these members of the answer to GET_MACHINE; it is skipped where one is missing."""

    def made(look: Look) -> Callable[[Facts], Found]:
        def check(facts: Facts) -> Found:
            for broker in facts.asked_brokers():
                if broker.machine is None:
                    yield NotChecked(broker.unknown, f"broker {broker.name}")
                elif all(name in broker.machine for name in needs):
                    yield from look(facts, broker, broker.machine)
                else:
                    yield NotChecked("a store folder does not say it")

        check.__name__, check.__doc__ = look.__name__, look.__doc__
        return check

    return made


# ---- addresses ----


def unreachable_brokers(facts: Facts) -> Found:
    """Addresses that brokers advertise and that cannot be reached from here"""
    for broker in facts.brokers.values():
        if broker.fault is not None:
            yield Finding(
                Severity.CRITICAL,
                f"broker {broker.name}",
                f"its address {broker.address} cannot be reached from here: {broker.fault}",
                "name servers give this address to every client: none of them can send or read",
                "start the broker, or give it an address that clients reach: `firearrow broker --advertise HOST:PORT` "
                "(Apache: brokerIP1)",
            )


@of_machines("listen", "advertised")
def listen_addresses(facts: Facts, broker: Broker, machine: Any) -> Found:  # noqa: ANN401
    """Listen and advertised addresses that a client on another host cannot reach"""
    listens = [_host(each) for each in machine["listen"]]
    advertised = _host(machine["advertised"] or "")
    if not all(_is_loopback(each) for each in listens):
        if advertised and _is_loopback(advertised):
            yield Finding(
                Severity.WARNING,
                f"broker {broker.name}",
                f"it listens on {listens[0]}, and advertises {machine['advertised']}",
                "clients on other hosts get an address that is their own host",
                "start it with --advertise and an address that clients reach",
            )
    elif advertised and not _is_loopback(advertised):
        yield Finding(
            Severity.CRITICAL,
            f"broker {broker.name}",
            f"it listens on {listens[0]} only, and advertises {machine['advertised']}",
            "no client can connect to the address that clients are given, unless something forwards it",
            "start it with --listen 0.0.0.0:PORT",
        )
    elif facts.name_server and not _is_loopback(_host(facts.name_server)):
        yield Finding(
            Severity.CRITICAL,
            f"broker {broker.name}",
            f"it listens on {listens[0]} only, and its name server is {facts.name_server}",
            "clients on other hosts reach the name server, but not the broker",
            "start it with --listen 0.0.0.0:PORT",
        )


def broker_permission(facts: Facts) -> Found:
    """Brokers that let no client send or read"""
    if facts.store is not None:
        yield NotChecked("a store folder does not say it")
    for broker in facts.asked_brokers():
        permission = broker.number("brokerPermission", 6)
        if permission & 6 != 6:
            yield Finding(
                Severity.WARNING,
                f"broker {broker.name}",
                f"brokerPermission is {permission}",
                f"clients cannot {'read from' if permission & 2 else 'send to'} it: it was taken out, and not put back",
                "`firearrow config set brokerPermission=6`",
            )


# ---- disk ----


def disk_use(facts: Facts) -> Found:
    """Disks that are nearly full"""
    for broker in facts.asked_brokers():
        for what, share, at in _shares(broker):
            levels = [
                min(max(broker.number(key, default), low), high) for key, default, (low, high) in LEVELS
            ]
            passed = sum(share * 100 > level for level in levels)
            if passed:
                yield Finding(
                    Severity.WARNING if passed == 1 else Severity.CRITICAL,
                    f"broker {broker.name}",
                    f"the disk of {what}{at} is {share:.0%} full; limits: {levels[0]}, {levels[1]} and {levels[2]} %",
                    "above the first limit old files are deleted at any hour, above the second also those that are not "
                    "expired, above the third messages are refused",
                    "a larger disk, or `firearrow config set fileReservedTime=HOURS`, or `firearrow topic purge TOPIC`",
                )


def _shares(broker: Broker) -> Iterator[tuple[str, float, str]]:
    if broker.machine is not None and broker.machine.get("log"):
        for what, name in (("the log", "log"), ("queues and tables", "store")):
            disk = broker.machine.get(name)
            if (
                disk
                and disk["total"]
                and (name == "log" or disk["device"] != broker.machine["log"]["device"])
            ):
                yield what, 1 - disk["free"] / disk["total"], f" ({disk['folder']})"
        return
    for what, key in (("the log", "commitLogDiskRatio"), ("the queues", "consumeQueueDiskRatio")):
        share = real(broker.runtime.get(key))
        if share is not None and share >= 0:
            yield what, share, ""


def free_bytes(facts: Facts) -> Found:
    """Disks without space for the next files of the log, or without inodes"""
    for broker in facts.asked_brokers():
        segment = broker.number("mappedFileSizeCommitLog", SEGMENT_BYTES)
        disks = [(broker.machine or {}).get(name) for name in ("log", "store")]
        free = disks[0]["free"] if disks[0] else _free(broker.runtime.get("commitLogDirCapacity", ""))
        if free is None:
            yield NotChecked("the broker does not say how much is free", f"broker {broker.name}")
        elif free < 2 * segment:
            yield Finding(
                Severity.CRITICAL,
                f"broker {broker.name}",
                f"{bytes_text(free)} are free for the log, whose files have {bytes_text(segment)}",
                "without space for the next file, all messages are refused",
                "free space, or a larger disk; `firearrow config set fileReservedTime=HOURS` keeps less",
            )
        inodes = [disk["inodesFree"] for disk in disks if disk and disk["inodesFree"] is not None]
        if inodes and min(inodes) < INODES_MIN:
            yield Finding(
                Severity.CRITICAL,
                f"broker {broker.name}",
                f"{counted(min(inodes), 'inode')} are free",
                "each queue of each topic has a file: without inodes no file can be made, however many bytes are free",
                "delete topics that are not needed, or make the file system again with more inodes",
            )


@of_machines("flush", "log")
def flush_mode(facts: Facts, broker: Broker, machine: Any) -> Found:  # noqa: ANN401
    """What a power cut loses: flush mode against the device's write cache"""
    mode, interval_ms, log = (
        machine["flush"]["mode"],
        machine["flush"]["intervalMs"],
        machine.get("log") or {},
    )
    subject = f"broker {broker.name}"
    if log.get("fileSystem") in IN_MEMORY:
        yield Finding(
            Severity.CRITICAL,
            subject,
            f"the log is in memory: {log['folder']} is a {log['fileSystem']}",
            "a reboot loses every message, whatever the flush mode",
            "start it with --store on a disk",
        )
    elif mode == "ASYNC_FLUSH" and interval_ms > FLUSH_INTERVAL_MS:
        cache = log.get("writeCache") or "not known"
        yield Finding(
            Severity.WARNING,
            subject,
            f"ASYNC_FLUSH with flushIntervalCommitLog={interval_ms} (write cache of {log.get('device')}: {cache})",
            f"a power cut loses up to {age_text(interval_ms)} of messages that were acknowledged",
            "`firearrow config set flushIntervalCommitLog=500`, or start it with flushDiskType=SYNC_FLUSH",
        )
    elif (
        mode == "SYNC_FLUSH"
        and log.get("writeCache") == "write back"
        and machine["syncMs"] is not None
        and machine["syncMs"] < SYNC_TOO_FAST_MS
    ):
        yield Finding(
            Severity.WARNING,
            subject,
            f"{log['device']} has a volatile write cache, and an fsync takes {machine['syncMs'] * 1000:.0f} µs",
            "so fast it can only be in the cache: SYNC_FLUSH promises what this device does not keep",
            "switch the cache off (`hdparm -W 0`, `nvme set-feature -f 6 -v 0`), or have it backed by a battery",
        )


@of_machines("store")
def fsync_time(facts: Facts, broker: Broker, machine: Any) -> Found:  # noqa: ANN401
    """A disk that syncs slowly, or not at all"""
    slow_ms = SYNC_SLOW_MS.get(machine.get("flush", {}).get("mode", ""), SYNC_SLOW_MS["ASYNC_FLUSH"])
    taken_ms, waited_ms = machine.get("syncMs"), machine.get("syncWaitedMs")
    if machine.get("syncFault"):
        found = f"an fsync fails: {machine['syncFault']}"
    elif waited_ms is not None:
        found = f"an fsync has not ended for {age_text(waited_ms)}"
    elif taken_ms is not None and taken_ms > slow_ms:
        found = f"an fsync takes {taken_ms:.1f} ms"
    else:
        if taken_ms is None:
            yield NotChecked("the folder cannot be written from here")
        return
    yield Finding(
        Severity.WARNING if machine.get("syncFault") is None and waited_ms is None else Severity.CRITICAL,
        f"broker {broker.name}",
        f"{found} ({(machine.get('store') or {}).get('device') or 'device not known'})",
        "with SYNC_FLUSH each acknowledgement waits for one; with ASYNC_FLUSH more is lost in a power cut",
        "look for what else writes there (`iotop`, `iostat -x 1`), and for errors (`dmesg`); use a disk of its own",
    )


# ---- the process and its machine ----


@of_machines("files")
def file_descriptors(facts: Facts, broker: Broker, machine: Any) -> Found:  # noqa: ANN401
    """A process that runs out of file descriptors"""
    used, limit = machine["files"]["used"], machine["files"]["limit"]
    if used is not None and limit and used > FILES_SHARE * limit:
        yield Finding(
            Severity.CRITICAL if used > FILES_SHARE_FULL * limit else Severity.WARNING,
            f"broker {broker.name}",
            f"{used:,} of {counted(limit, 'file descriptor')} are in use",
            "each connection and each file takes one: without any, clients are turned away",
            "`LimitNOFILE=1048576` in the systemd unit, or `ulimit -n 1048576` before the start",
        )


def service_threads(facts: Facts) -> Found:
    """Threads of brokers that ended or hang"""
    for broker, status in _reporting(facts):
        for thread in status.get("threads", ()):
            if thread["fault"]:
                yield Finding(
                    Severity.CRITICAL,
                    f"broker {broker.name}",
                    thread["fault"],
                    "without its threads a broker cannot keep what it acknowledges: it refuses messages once one has "
                    "ended or the log is not synced",
                    "look into its log and for errors of its disk (`dmesg`), then restart it",
                )


def unready_brokers(facts: Facts) -> Found:
    """Brokers that do not serve clients"""
    for broker, status in _reporting(facts):
        unready = status.get("unready")
        if unready and all(unready != thread["fault"] for thread in status.get("threads", ())):
            yield Finding(
                Severity.CRITICAL,
                f"broker {broker.name}",
                f"it is not ready: {unready}",
                "clients that need it wait or fail",
                "do what its reason says; `curl http://HOST:PORT/readyz` shows it, too",
            )


def table_saves(facts: Facts) -> Found:
    """Config files of brokers that are written late, slowly or not at all"""
    for broker, status in _reporting(facts):
        for save in status.get("saves", ()):
            if save["fault"]:
                found = f"the {save['table']} file cannot be written: {save['fault']}"
            elif save["lateMs"] > SAVE_LATE_MS:
                found = f"the {save['table']} file should have been written {age_text(save['lateMs'])} ago"
            elif save["lastMs"] > SAVE_SLOW_MS:
                found = f"the {save['table']} file takes {age_text(save['lastMs'])} to write"
            else:
                continue
            yield Finding(
                Severity.CRITICAL if save["lateMs"] > SAVE_LATE_MS else Severity.WARNING,
                f"broker {broker.name}",
                found,
                "changes of topics and groups are answered when they are written; until then offsets are only in the "
                "journal",
                "free space, or a faster disk; fewer groups with offsets of deleted topics make the file smaller",
            )


def _reporting(facts: Facts) -> Iterator[tuple[Broker, Any]]:
    """FireArrow's brokers, with what they report of themselves."""
    return ((broker, broker.status) for broker in facts.asked_brokers() if broker.status is not None)


@of_machines("nowMs")
def machine_clock(facts: Facts, broker: Broker, machine: Any) -> Found:  # noqa: ANN401
    """A broker's clock that differs from the one here"""
    if broker.ahead_ms is not None and abs(broker.ahead_ms) > CLOCK_MS:
        yield Finding(
            Severity.WARNING,
            f"broker {broker.name}",
            f"its clock is {age_text(abs(round(broker.ahead_ms)))} {'ahead of' if broker.ahead_ms > 0 else 'behind'} "
            "the clock here",
            "store times, timers, retention and searches by time follow the broker's clock",
            "set both clocks by NTP: `timedatectl set-ntp true`",
        )


@of_machines("memory")
def memory_limit(facts: Facts, broker: Broker, machine: Any) -> Found:  # noqa: ANN401
    """Memory limits of a container that are too tight"""
    limit, used = machine["memory"]["limit"], machine["memory"]["used"]
    if not limit:
        return
    if limit < MEMORY_MIN:
        found = f"its limit of memory is {bytes_text(limit)}"
    elif used is not None and used > MEMORY_SHARE * limit:
        found = f"it uses {bytes_text(used)} of its limit of {bytes_text(limit)}"
    else:
        return
    yield Finding(
        Severity.WARNING,
        f"broker {broker.name}",
        found,
        "at the limit the kernel kills the broker, and before that it drops the pages of the log that are read",
        "raise the limit of the container (`docker run --memory`, resources.limits.memory) to 256 MiB or more",
    )


@of_machines("lastBackup")
def last_backup(facts: Facts, broker: Broker, machine: Any) -> Found:  # noqa: ANN401
    """Age of the last backup"""
    backup = machine.get("lastBackup")
    oldest_ms = max(int(real(broker.runtime.get("earliestMessageTimeStamp")) or 0), 0)
    folder = (machine.get("store") or {}).get("folder", "DIR")
    if backup is not None and facts.now_ms - backup["madeMs"] > BACKUP_AGE_MS:
        found = f"the last backup is {age_text(facts.now_ms - backup['madeMs'])} old ({backup['target']})"
    elif backup is None and oldest_ms and facts.now_ms - oldest_ms > UNSAVED_AGE_MS:
        found = f"no backup is known, and its messages go back {age_text(facts.now_ms - oldest_ms)}"
    else:
        return
    yield Finding(
        Severity.WARNING,
        f"broker {broker.name}",
        found,
        "a broker has one copy of its messages: a broken disk loses them",
        f"`firearrow store backup {folder} TO`, also while the broker runs; best daily by cron",
    )


def dispatch_behind(facts: Facts) -> Found:
    """Stored messages that no consumer can see yet"""
    for broker in facts.asked_brokers():
        bytes_left = real(broker.runtime.get("dispatchBehindBytes")) or 0
        if bytes_left > BEHIND_BYTES:
            yield Finding(
                Severity.WARNING,
                f"broker {broker.name}",
                f"{bytes_text(bytes_left)} of the log are not in the queues yet",
                "messages are stored, but no consumer gets them before they are in a queue",
                "look at the disk and the CPU of its machine; it catches up by itself",
            )


def unclean_stop(facts: Facts) -> Found:
    """A store that was not closed"""
    store = facts.store
    if store is not None and store.killed and not store.running:
        yield Finding(
            Severity.WARNING,
            f"store {store.folder}",
            "its broker was killed, or its machine lost power: the file abort is there",
            "the next start repairs what the stop left half done; with ASYNC_FLUSH the last messages may be gone",
            f"`firearrow store verify {store.folder}`, then start the broker",
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
            yield Finding(
                Severity.WARNING,
                subject,
                f"clients older than {version_text(fault.before)}: {shortened(clients, 3)}",
                f"{fault.what} ({fault.reference})",
                f"give them client {version_text(fault.before)} or later",
            )


def broker_versions(facts: Facts) -> Found:
    """Brokers of versions with known holes"""
    for broker in facts.asked_brokers():
        found = re.fullmatch(r"V(\d+)_(\d+)_(\d+)", broker.runtime.get("brokerVersionDesc", ""))
        if found is None or broker.machine is not None:
            continue
        version = tuple(map(int, found.groups()))
        for last, first, what, fixed in BROKER_FAULTS:
            if first <= version <= last:
                yield Finding(
                    Severity.CRITICAL,
                    f"broker {broker.name}",
                    f"Apache RocketMQ {'.'.join(map(str, version))}",
                    what,
                    f"Apache RocketMQ {fixed} or later, or FireArrow, which has no such command",
                )
                break


def _host(address: str) -> str:
    return address.rpartition(":")[0].strip("[]")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _free(text: str) -> float | None:
    """Of `Total : 97.6 GiB, Free : 73.1 GiB.`"""
    found = CAPACITY.search(text)
    if found is None or found[4] not in UNITS:
        return None
    return float(found[3]) * UNITS[found[4]]


CHECKS = tuple(
    map(
        check_of,
        (
            unreachable_brokers,
            listen_addresses,
            broker_permission,
            disk_use,
            free_bytes,
            flush_mode,
            fsync_time,
            file_descriptors,
            service_threads,
            unready_brokers,
            table_saves,
            machine_clock,
            memory_limit,
            last_backup,
            dispatch_behind,
            unclean_stop,
            client_versions,
            broker_versions,
        ),
    )
)
