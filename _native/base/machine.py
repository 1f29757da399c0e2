"""What only the machine of a broker or a store can report: its disks, the time of an fsync, open files, mappings, and
the limits of its cgroups for memory, threads and CPU.

Everything is measured when it is asked for. What this system does not report is None. Linux only. Any thread; `sync_ms`
waits for the disk.
"""

import errno
import os
import resource
import time
from pathlib import Path
from typing import Any

PROBE = "fsync_probe"
"""The file in the store's folder that `sync_ms` writes, syncs and deletes."""
PROBE_BYTES = 4096
PROBE_SYNCS = 3
NO_LIMIT_BYTES = 1 << 60
"""A larger limit of memory is none: without one, version 1 of cgroups gives almost 2^63."""
CGROUPS, OWN_CGROUPS = "/sys/fs/cgroup", "/proc/self/cgroup"
FILE_BYTES_MAX = 1 << 20
"""Most that is read of a file of the kernel."""


def disk(folder: str) -> dict[str, Any]:
    """The disk of a folder: `total`, `free` (bytes, for an unprivileged process), `inodesFree`, `inodesTotal` (for such
    a process as well), `fileSystem`, `device`,
    `writeCache` (`write back`: the device has a volatile cache, which an fsync empties). OSError."""
    status = os.statvfs(folder)
    number = _device_number(folder)
    name, cache = _device(number)
    return {
        "folder": folder,
        "total": status.f_frsize * (status.f_blocks - status.f_bfree + status.f_bavail),
        "free": status.f_frsize * status.f_bavail,
        "inodesFree": status.f_favail if status.f_files else None,
        "inodesTotal": status.f_files - status.f_ffree + status.f_favail if status.f_files else None,
        "fileSystem": _file_system(number),
        "device": name,
        "writeCache": cache,
    }


def sync_ms(folder: str) -> float:
    """How long an fdatasync of 4 KiB takes, in milliseconds: the median of three. OSError."""
    path = os.path.join(folder, PROBE)
    fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    try:
        os.pwrite(fd, bytes(PROBE_BYTES), 0)
        os.fsync(fd)  # after this only the bytes change, as in the log, whose blocks are reserved
        taken = sorted(_sync_once(fd) for _ in range(PROBE_SYNCS))
    finally:
        os.close(fd)
        os.unlink(path)
    return round(taken[PROBE_SYNCS // 2] * 1000, 3)


def _sync_once(fd: int) -> float:
    os.pwrite(fd, os.urandom(PROBE_BYTES), 0)
    begin = time.perf_counter()
    os.fdatasync(fd)
    return time.perf_counter() - begin


def open_files() -> dict[str, int | None]:
    """`used` and `limit` of this process's file descriptors."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    try:
        used: int | None = len(os.listdir("/proc/self/fd"))
    except OSError as error:  # without a descriptor for the look, all are in use
        used = limit if error.errno == errno.EMFILE else None
    return {"used": used, "limit": limit}


def system_files() -> dict[str, int | None]:
    """`used` and `limit` of the file descriptors of all processes."""
    words = _read("/proc/sys/fs/file-nr").split()
    used, limit = (_number(words[at]) if len(words) == 3 else None for at in (0, 2))
    return {"used": used, "limit": limit}


def mappings(pid: str = "self") -> dict[str, int | None]:
    """`used` and `limit` of a process's memory mappings."""
    try:
        with open(f"/proc/{pid}/maps", "rb") as file:
            used: int | None = sum(1 for _ in file)
    except OSError:
        used = None
    return {"used": used, "limit": _number(_read("/proc/sys/vm/max_map_count"))}


def tasks(cgroups: str = CGROUPS, own: str = OWN_CGROUPS) -> dict[str, int | None]:
    """`used` and `limit` of the threads of the container or unit. The limit counts that is reached first, of this
    process's cgroup or one above it, in either version of cgroups."""
    found = [
        {"used": _number(_read(folder / "pids.current")), "limit": limit}
        for folder in _cgroup_folders("pids", cgroups, own)
        if (limit := _number(_read(folder / "pids.max"))) is not None
    ]
    return min(
        found,
        key=lambda each: (each["limit"] or 0) - (each["used"] or 0),
        default={"limit": None, "used": None},
    )


def cpu(cgroups: str = CGROUPS, own: str = OWN_CGROUPS) -> dict[str, float | int | None]:
    """`limit` in CPUs of the container or unit, the tightest one; of its periods so far `periods`, and `throttled`
    those in which it was stopped. None: there is no limit."""
    found: list[dict[str, float | int | None]] = []
    for folder in _cgroup_folders("cpu", cgroups, own):
        quota, _, period = _read(folder / "cpu.max").strip().partition(" ")
        quota = quota or _read(folder / "cpu.cfs_quota_us").strip()
        period = period or _read(folder / "cpu.cfs_period_us").strip()
        if quota.isdecimal() and period.isdecimal() and int(period):
            counts = dict(line.partition(" ")[::2] for line in _read(folder / "cpu.stat").splitlines())
            found.append(
                {
                    "limit": int(quota) / int(period),
                    "periods": _number(counts.get("nr_periods", "")),
                    "throttled": _number(counts.get("nr_throttled", "")),
                }
            )
    none: dict[str, float | int | None] = {"limit": None, "periods": None, "throttled": None}
    return min(found, key=lambda each: each["limit"] or 0, default=none)


def memory(cgroups: str = CGROUPS, own: str = OWN_CGROUPS) -> dict[str, int | None]:
    """`limit` of the container or unit, `used` of it without the page cache that can be dropped; bytes.

    The tightest limit counts, of this process's cgroup or one above it, in either version of cgroups.
    """
    found = [
        each for each in map(_memory_of, _cgroup_folders("memory", cgroups, own)) if each["limit"] is not None
    ]
    return min(found, key=lambda each: each["limit"] or 0, default={"limit": None, "used": None})


def memory_limit(cgroups: str = CGROUPS, own: str = OWN_CGROUPS) -> int | None:
    """The tightest limit in bytes of this process's cgroup or one above it; above `memory.high`, version 2 slows its
    processes down. None: there is none."""
    found = (_limit_of(folder) for folder in _cgroup_folders("memory", cgroups, own))
    return min((limit for limit in found if limit is not None), default=None)


def anonymous_bytes() -> int | None:
    """The process's own memory, without files that are mapped."""
    for line in _read("/proc/self/status").splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) << 10
    return None


def _cgroup_folders(controller: str, cgroups: str, own: str) -> list[Path]:
    """The folders of this process's cgroup and of those above it, of version 2 or of a controller of version 1. In a
    container they may not be visible, or `own` may not name them: the root of what is mounted is always among them."""
    found: dict[Path, None] = {}
    for line in _read(own).splitlines():
        kind, _, inner = line.partition(":")[2].partition(":")
        if kind and controller not in kind.split(","):
            continue
        root = Path(cgroups, controller) if kind else Path(cgroups)
        parts = [part for part in inner.split("/") if part not in ("", "..")]
        for count in range(len(parts), -1, -1):
            found[root.joinpath(*parts[:count])] = None
    return list(found | dict.fromkeys((Path(cgroups), Path(cgroups, controller))))


def _memory_of(folder: Path) -> dict[str, int | None]:
    for limit_name, used_name, cache_name in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        if not (folder / limit_name).exists():
            continue
        used, cache = _number(_read(folder / used_name)), 0
        for line in _read(folder / "memory.stat").splitlines():
            name, _, value = line.partition(" ")
            if name == cache_name:
                cache = _number(value) or 0
        return {
            "limit": _limit_of(folder),
            "used": None if used is None else max(used - cache, 0),
        }
    return {"limit": None, "used": None}


def _limit_of(folder: Path) -> int | None:
    """The limit of a cgroup, and of those above it where version 1 states them."""
    texts = [_read(folder / name) for name in ("memory.max", "memory.high", "memory.limit_in_bytes")]
    if texts[-1]:
        lines = (line.split() for line in _read(folder / "memory.stat").splitlines())
        texts += [words[1] for words in lines if words[:1] == ["hierarchical_memory_limit"] and words[1:]]
    limits = (_number(text) for text in texts)
    return min((limit for limit in limits if limit is not None and limit < NO_LIMIT_BYTES), default=None)


def _device_number(folder: str) -> str:
    number = os.stat(folder).st_dev
    return f"{os.major(number)}:{os.minor(number)}"


def _device(number: str) -> tuple[str | None, str | None]:
    """The block device of a file system and its write cache; a partition has those of its disk."""
    path = Path(os.path.realpath(f"/sys/dev/block/{number}"))
    if (path / "partition").exists():
        path = path.parent
    if not path.is_dir():
        return None, None
    return path.name, _read(path / "queue" / "write_cache").strip() or None


def _file_system(number: str) -> str | None:
    for line in _read("/proc/self/mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        if before.split()[2:3] == [number]:
            return after.split(" ")[0] or None
    return None


def _number(text: str) -> int | None:
    text = text.strip()
    return int(text) if text.isdecimal() and len(text) < 25 else None


def _read(path: str | Path) -> str:
    """The text of a file of the kernel; empty if it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(FILE_BYTES_MAX).decode("utf-8", "replace")
    except OSError:
        return ""
