"""The servers of a comparison by their names in the rows: started if a row needs them, stopped at the end."""

import functools
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from bench import servers
from bench.frames import PULLED
from bench.maven import class_path
from bench.programs import CACHE
from bench.replica_rows import MASTER, PAIR, SYNC_MASTER
from bench.rows import OURS
from bench.servers import Server
from bench.whole_rows import BARE, MANY, ROLLING, STRATEGIES, TLS, USERS

RECORD_BYTES = 1200
"""The size of a message of 1 KiB in a pull response."""
SMALL_PART = 0.1
"""Floors of smaller runs have smaller files."""
RELAY_GIB = 4
"""More than the largest end-to-end load writes."""
SYNCED = "flushDiskType=SYNC_FLUSH"
ROLLS = (
    "mappedFileSizeCommitLog=8388608",
    "mappedFileSizeConsumeQueue=60000",
    "fileReservedTime=0",
    "deleteWhen=" + ";".join(f"{hour:02}" for hour in range(24)),
    "cleanResourceInterval=1000",
)
"""Segments last a few seconds and are deleted as soon as possible."""


def _with_users(strategy: str, folder: Path) -> Server:
    return servers.firearrow_with_users(folder, strategy)


def factories(part: float) -> dict[tuple[str, ...], Callable[[Path], Server]]:
    """Names in rows → a function that starts the server in a folder; names in one key share a process."""
    file_mib = 512 if part > SMALL_PART else 64
    pulled = str(PULLED * RECORD_BYTES)
    return {
        (OURS,): servers.firearrow,
        ("firearrow synced",): lambda at: servers.firearrow(at, SYNCED),
        (ROLLING,): lambda at: servers.firearrow(at, *ROLLS),
        (MANY,): servers.firearrow,
        (BARE,): lambda at: servers.firearrow(at, "messageIndexEnable=false"),
        (TLS,): servers.firearrow_with_tls,
        (MASTER,): servers.master,
        (SYNC_MASTER,): lambda at: servers.master(at, "brokerRole=SYNC_MASTER"),
        (PAIR,): servers.pair,
        **{
            (f"{USERS}, {strategy.lower()}",): functools.partial(_with_users, strategy)
            for strategy in STRATEGIES
        },
        ("floor",): lambda at: servers.floor(at, "append", file_mib=file_mib),
        ("synced floor",): lambda at: servers.floor(at, "synced", file_mib=file_mib),
        ("relay floor",): lambda at: servers.relay(at, file_gib=RELAY_GIB if part > SMALL_PART else 1),
        ("record floor",): lambda at: servers.floor(at, "record", file_mib=file_mib),
        ("floor contiguous",): lambda at: servers.floor(at, "pull", pulled, "1", file_mib=file_mib),
        ("floor scattered",): lambda at: servers.floor(at, "pull", pulled, "32", file_mib=file_mib),
        ("redis SET", "redis XADD"): lambda at: servers.redis(at, synced=False),
        ("redis synced XADD",): lambda at: servers.redis(at, synced=True),
        ("apache",): lambda at: servers.apache(at, class_path(CACHE / "apache", *servers.APACHE)),
        ("apache proxy",): lambda at: servers.apache_proxy(
            at, class_path(CACHE / "apache-proxy", *servers.APACHE_PROXY)
        ),
        ("apache synced",): lambda at: servers.apache(
            at, class_path(CACHE / "apache", *servers.APACHE), SYNCED
        ),
        ("apache rolling",): lambda at: servers.apache(
            at, class_path(CACHE / "apache", *servers.APACHE), *ROLLS
        ),
    }


def started(stack: ExitStack, wanted: set[str], root: Path, part: float) -> dict[str, Server]:
    """Name → server; `stack` stops them."""
    servers.allow_many_files()
    found: dict[str, Server] = {}
    for names, make in factories(part).items():
        if not wanted.isdisjoint(names):
            folder = root / names[0].replace(" ", "-")
            folder.mkdir()
            server = make(folder)
            stack.callback(server.stop)
            server.rest()
            found.update(dict.fromkeys(names, server))
    return found
