"""Checks of the machines of brokers: disk, flush, inodes, descriptors, mappings, memory, CPU, clock. Pure."""

import re
from collections.abc import Callable, Iterator
from typing import Any

from firearrow._native.store_checks.findings import Severity
from firearrow.client.base.times import age_text
from firearrow.client.cli.doctor.checks import Found, NotChecked, Trouble, counted, finds
from firearrow.client.cli.doctor.facts import Broker, Facts
from firearrow.client.cli.formats import real
from firearrow.client.cli.output import bytes_text

NOTE, WARNING, CRITICAL = Severity
LEVELS = (
    ("diskMaxUsedSpaceRatio", 75, (10, 95)),
    ("diskSpaceCleanForciblyRatio", 85, (30, 85)),
    ("diskSpaceWarningLevelRatio", 90, (35, 90)),
)
"""Key, default and range of the shares of a disk from which on the broker acts."""
SEGMENT_BYTES = 1 << 30
INODES_MIN = 1000
INODES_SHARE = 0.95
FLUSH_INTERVAL_MS = 5_000
"""What ASYNC_FLUSH may lose in a power cut, by default half a second."""
SYNC_SLOW_MS = {"SYNC_FLUSH": 50.0, "ASYNC_FLUSH": 500.0}
SYNC_TOO_FAST_MS = 0.02
"""No device with a volatile cache has written anything to its medium by then."""
LIMIT_SHARE, LIMIT_SHARE_FULL = 0.7, 0.9
"""Of descriptors, threads and mappings: from when on there are few, and almost none."""
MEMORY_SHARE = 0.9
MEMORY_MIN = 64 << 20
"""28 MiB for the process, the rest for connections and for messages that are on their way."""
THROTTLED_SHARE = 0.2
CLOCK_MS = 5_000
IN_MEMORY = ("tmpfs", "ramfs")
CAPACITY = re.compile(r"Total : ([\d.]+) (\w+), Free : ([\d.]+) (\w+)\.")
UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}

DISK_FULL = Trouble(
    WARNING,
    "the disk of {what} is {share} full; limits: {limits} %",
    "above the first limit old files are deleted at any hour, above the second also those that are not expired, above "
    "the third messages are refused",
    "a larger disk, or `firearrow config set fileReservedTime=HOURS`, or `firearrow topic purge TOPIC`",
    CRITICAL,
)
NO_SPACE = Trouble(
    CRITICAL,
    "{free} are free for the log, whose files have {segment}",
    "without space for the next file, all messages are refused",
    "free space, or a larger disk; `firearrow config set fileReservedTime=HOURS` keeps less",
)
NO_INODES = Trouble(
    WARNING,
    "{free} of {folder} are free{share}",
    "each queue of each topic has a file: without inodes no file can be made, however many bytes are free",
    "delete topics that are not needed, or make the file system again with more inodes (`mkfs.ext4 -N`)",
    CRITICAL,
)
LOG_IN_MEMORY = Trouble(
    CRITICAL,
    "the log is in memory: {folder} is a {kind}",
    "a reboot loses every message, whatever the flush mode",
    "start it with --store on a disk",
)
RARE_FLUSH = Trouble(
    WARNING,
    "ASYNC_FLUSH with flushIntervalCommitLog={interval} (write cache of {device}: {cache})",
    "a power cut loses up to {time} of messages that were acknowledged",
    "`firearrow config set flushIntervalCommitLog=500`, or start it with flushDiskType=SYNC_FLUSH",
)
VOLATILE_CACHE = Trouble(
    WARNING,
    "{device} has a volatile write cache, and an fsync takes {time} µs",
    "so fast it can only be in the cache: SYNC_FLUSH promises what this device does not keep",
    "switch the cache off (`hdparm -W 0`, `nvme set-feature -f 6 -v 0`), or have it backed by a battery",
)
SLOW_SYNC = Trouble(
    WARNING,
    "{found} ({device})",
    "with SYNC_FLUSH each acknowledgement waits for one; with ASYNC_FLUSH more is lost in a power cut",
    "look for what else writes there (`iotop`, `iostat -x 1`), and for errors (`dmesg`); use a disk of its own",
    CRITICAL,
)
FEW_DESCRIPTORS = Trouble(
    WARNING,
    "{used} of {limit} are in use",
    "each connection and each file takes one: without any, clients are turned away",
    "`LimitNOFILE=1048576` in the systemd unit, or `ulimit -n 1048576` before the start",
    CRITICAL,
)
FEW_MAPPINGS = Trouble(
    WARNING,
    "{used} of {limit} are in use",
    "each file of the log, of a queue and of the index is mapped: without any, reads fail and the process may end",
    "`sysctl -w vm.max_map_count=655360`; fewer topics and queues",
    CRITICAL,
)
FEW_TASKS = Trouble(
    WARNING,
    "{used} of {limit} of its cgroup are in use",
    "at the limit no thread can be started: the broker may not begin again what has ended",
    "raise the limit (`TasksMax=` in the systemd unit, `docker run --pids-limit`)",
    CRITICAL,
)
THROTTLED = Trouble(
    WARNING,
    "its cgroup gives it {cpus} CPUs, and stopped it in {share} of the last periods",
    "each time all clients wait for up to a tenth of a second: sends and pulls are late",
    "raise the limit (`CPUQuota=` in the systemd unit, `docker run --cpus`, resources.limits.cpu)",
)
OTHER_CLOCK = Trouble(
    WARNING,
    "its clock is {age} {side} the clock here",
    "store times, timers, retention and searches by time follow the broker's clock",
    "set both clocks by NTP: `timedatectl set-ntp true`",
)
LITTLE_MEMORY = Trouble(
    WARNING,
    "{found}",
    "at the limit the kernel kills the broker, and before that it drops the pages of the log that are read",
    "raise the limit of the container (`docker run --memory`, resources.limits.memory) to 256 MiB or more",
)

Measured = Callable[[Facts, Broker, Any], Found]


def of_machines(*needs: str) -> Callable[[Measured], Callable[[Facts], Found]]:
    """A check of these members of the answer to GET_MACHINE; it is skipped where one is missing."""

    def made(look: Measured) -> Callable[[Facts], Found]:
        def check(facts: Facts) -> Found:
            for broker in facts.asked_brokers():
                if broker.machine is None:
                    yield NotChecked(broker.unknown, f"broker {broker.name}")
                elif all(name in broker.machine for name in needs):
                    yield from look(facts, broker, broker.machine)
                elif facts.store is not None:
                    yield NotChecked("a store folder does not say it")
                else:
                    yield NotChecked(
                        "it is of an older version, which does not say it", f"broker {broker.name}"
                    )

        check.__name__, check.__doc__ = look.__name__, look.__doc__
        return check

    return made


# ---- disk ----


@finds(DISK_FULL)
def disk_use(facts: Facts) -> Found:
    """Disks that are nearly full"""
    for broker in facts.asked_brokers():
        for what, share in _shares(broker):
            levels = [
                min(max(broker.number(key, default), low), high) for key, default, (low, high) in LEVELS
            ]
            passed = sum(share * 100 > level for level in levels)
            if passed:
                yield DISK_FULL.of(
                    f"broker {broker.name}",
                    is_worst=passed > 1,
                    what=what,
                    share=f"{share:.0%}",
                    limits=f"{levels[0]}, {levels[1]} and {levels[2]}",
                )


def _shares(broker: Broker) -> Iterator[tuple[str, float]]:
    if broker.machine is not None and broker.machine.get("log"):
        for what, name in (("the log", "log"), ("queues and tables", "store")):
            disk = broker.machine.get(name)
            if (
                disk
                and disk["total"]
                and (name == "log" or disk["device"] != broker.machine["log"]["device"])
            ):
                yield f"{what} ({disk['folder']})", 1 - disk["free"] / disk["total"]
        return
    for what, key in (("the log", "commitLogDiskRatio"), ("the queues", "consumeQueueDiskRatio")):
        share = real(broker.runtime.get(key))
        if share is not None and share >= 0:
            yield what, share


@finds(NO_SPACE, NO_INODES)
def free_bytes(facts: Facts) -> Found:
    """Disks without space for the next files of the log, or without inodes"""
    for broker in facts.asked_brokers():
        subject = f"broker {broker.name}"
        segment = broker.number("mappedFileSizeCommitLog", SEGMENT_BYTES)
        disks = [disk for name in ("log", "store") if (disk := (broker.machine or {}).get(name))]
        free = disks[0]["free"] if disks else _free(broker.runtime.get("commitLogDirCapacity", ""))
        if free is None:
            yield NotChecked("the broker does not say how much is free", subject)
        elif free < 2 * segment:
            yield NO_SPACE.of(subject, free=bytes_text(free), segment=bytes_text(segment))
        few = min(
            (disk for disk in disks if disk["inodesFree"] is not None),
            key=lambda disk: int(disk["inodesFree"]),
            default=None,
        )
        if few is not None:
            left, total = few["inodesFree"], few.get("inodesTotal") or 0
            used = 1 - left / total if total else 0.0
            if left < INODES_MIN or used > INODES_SHARE:
                yield NO_INODES.of(
                    subject,
                    is_worst=left < INODES_MIN,
                    free=counted(left, "inode"),
                    folder=few["folder"],
                    share=f": {used:.0%} are in use" if total else "",
                )


def _free(text: str) -> float | None:
    """Of `Total : 97.6 GiB, Free : 73.1 GiB.`"""
    found = CAPACITY.search(text)
    if found is None or found[4] not in UNITS:
        return None
    return float(found[3]) * UNITS[found[4]]


@finds(LOG_IN_MEMORY, RARE_FLUSH, VOLATILE_CACHE)
@of_machines("flush", "log")
def flush_mode(facts: Facts, broker: Broker, machine: Any) -> Found:  # noqa: ANN401
    """What a power cut loses: flush mode against the device's write cache"""
    mode, interval_ms, log = (
        machine["flush"]["mode"],
        machine["flush"]["intervalMs"],
        machine.get("log") or {},
    )
    subject, cache = f"broker {broker.name}", log.get("writeCache")
    if log.get("fileSystem") in IN_MEMORY:
        yield LOG_IN_MEMORY.of(subject, folder=log["folder"], kind=log["fileSystem"])
    elif mode == "ASYNC_FLUSH" and interval_ms > FLUSH_INTERVAL_MS:
        yield RARE_FLUSH.of(
            subject,
            interval=interval_ms,
            device=log.get("device"),
            cache=cache or "not known",
            time=age_text(interval_ms),
        )
    elif (
        mode == "SYNC_FLUSH"
        and cache == "write back"
        and machine["syncMs"] is not None
        and machine["syncMs"] < SYNC_TOO_FAST_MS
    ):
        yield VOLATILE_CACHE.of(subject, device=log["device"], time=f"{machine['syncMs'] * 1000:.0f}")


@finds(SLOW_SYNC)
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
    yield SLOW_SYNC.of(
        f"broker {broker.name}",
        is_worst=machine.get("syncFault") is not None or waited_ms is not None,
        found=found,
        device=(machine.get("store") or {}).get("device") or "device not known",
    )


# ---- limits ----


def _near_limit(broker: Broker, machine: Any, name: str, what: str, trouble: Trouble) -> Found:  # noqa: ANN401
    """`name`: a member with `used` and `limit`, each None if it is not known."""
    used, limit = machine[name]["used"], machine[name]["limit"]
    if used is not None and limit and used > LIMIT_SHARE * limit:
        yield trouble.of(
            f"broker {broker.name}",
            is_worst=used > LIMIT_SHARE_FULL * limit,
            used=f"{used:,}",
            limit=counted(limit, what),
        )


@finds(FEW_DESCRIPTORS)
@of_machines("files")
def file_descriptors(facts: Facts, broker: Broker, machine: Any) -> Found:  # noqa: ANN401
    """A process, or its whole machine, that runs out of file descriptors"""
    yield from _near_limit(broker, machine, "files", "file descriptor", FEW_DESCRIPTORS)
    if "systemFiles" in machine:
        yield from _near_limit(
            broker, machine, "systemFiles", "file descriptor of all processes", FEW_DESCRIPTORS
        )


@finds(FEW_MAPPINGS)
@of_machines("mappings")
def memory_mappings(facts: Facts, broker: Broker, machine: Any) -> Found:  # noqa: ANN401
    """A process that runs out of memory mappings"""
    yield from _near_limit(broker, machine, "mappings", "memory mapping", FEW_MAPPINGS)


@finds(FEW_TASKS)
@of_machines("tasks")
def cgroup_tasks(facts: Facts, broker: Broker, machine: Any) -> Found:  # noqa: ANN401
    """Limits of threads of a container that are nearly reached"""
    yield from _near_limit(broker, machine, "tasks", "task", FEW_TASKS)


@finds(THROTTLED)
@of_machines("cpu")
def cgroup_cpu(facts: Facts, broker: Broker, machine: Any) -> Found:  # noqa: ANN401
    """CPU limits of a container that stop the broker"""
    limit, share = machine["cpu"]["limit"], machine["cpu"]["throttledShare"]
    if limit is not None and share is not None and share > THROTTLED_SHARE:
        yield THROTTLED.of(f"broker {broker.name}", cpus=f"{limit:.2g}", share=f"{share:.0%}")


@finds(LITTLE_MEMORY)
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
    yield LITTLE_MEMORY.of(f"broker {broker.name}", found=found)


@finds(OTHER_CLOCK)
@of_machines("nowMs")
def machine_clock(facts: Facts, broker: Broker, machine: Any) -> Found:  # noqa: ANN401
    """A broker's clock that differs from the one here"""
    if broker.ahead_ms is not None and abs(broker.ahead_ms) > CLOCK_MS:
        yield OTHER_CLOCK.of(
            f"broker {broker.name}",
            age=age_text(abs(round(broker.ahead_ms))),
            side="ahead of" if broker.ahead_ms > 0 else "behind",
        )


CHECKS = (
    disk_use,
    free_bytes,
    flush_mode,
    fsync_time,
    file_descriptors,
    memory_mappings,
    cgroup_tasks,
    cgroup_cpu,
    memory_limit,
    machine_clock,
)
