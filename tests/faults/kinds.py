"""Kinds of faults that a round draws from, each applied to a running broker; after transient ones, sends recover.

Owner: the round's thread. `heal` removes what was applied.
"""

import errno
import random
import resource
from collections.abc import Callable

from tests.faults.shim import Call, Shim
from tests.support.broker_process import BrokerProcess

DAY_S = 86_400
UNLIMITED = resource.RLIM_INFINITY
FULL = (errno.ENOSPC, errno.EDQUOT)
FILES = ("/commitlog/", "/consumequeue/", "/index/", "/config/", "/journal/", "/checkpoint", "/store/")
Fault = Callable[[random.Random, BrokerProcess, Shim], None]


def full_disk(draw: random.Random, broker: BrokerProcess, shim: Shim) -> None:
    path = draw.choice(FILES)
    for call in (Call.CREATE, Call.WRITE, Call.ALLOCATE, Call.TRUNCATE):
        shim.fail(call, draw.choice(FULL), path, passes=draw.choice((0, 0, 1, 5)))


def some_writes(draw: random.Random, broker: BrokerProcess, shim: Shim) -> None:
    shim.fail(
        Call.WRITE,
        draw.choice((errno.EIO, *FULL)),
        "/commitlog/",
        passes=draw.randint(0, 20),
        times=draw.randint(1, 5),
    )


def read_only(draw: random.Random, broker: BrokerProcess, shim: Shim) -> None:
    for call in (Call.CREATE, Call.WRITE, Call.RENAME, Call.TRUNCATE):
        shim.fail(call, errno.EROFS, "/store/")


def config_files(draw: random.Random, broker: BrokerProcess, shim: Shim) -> None:
    call = draw.choice((Call.OPEN, Call.CREATE, Call.WRITE, Call.SYNC, Call.RENAME))
    shim.fail(call, draw.choice((errno.EIO, errno.ENOSPC)), draw.choice(("/config/", "/checkpoint")))


def file_size(draw: random.Random, broker: BrokerProcess, shim: Shim) -> None:
    resource.prlimit(broker.process.pid, resource.RLIMIT_FSIZE, (draw.choice((4096, 60_000)), UNLIMITED))


def descriptors(draw: random.Random, broker: BrokerProcess, shim: Shim) -> None:
    hard = resource.prlimit(broker.process.pid, resource.RLIMIT_NOFILE)[1]
    resource.prlimit(broker.process.pid, resource.RLIMIT_NOFILE, (0, hard))


def memory(draw: random.Random, broker: BrokerProcess, shim: Shim) -> None:
    resource.prlimit(broker.process.pid, resource.RLIMIT_AS, (1 << 20, UNLIMITED))


def clock(draw: random.Random, broker: BrokerProcess, shim: Shim) -> None:
    shim.set_clock(draw.uniform(-DAY_S, DAY_S))


def log_sync(draw: random.Random, broker: BrokerProcess, shim: Shim) -> None:
    shim.fail(Call.SYNC, errno.EIO, "/commitlog/", passes=draw.randint(0, 3), times=1)


def derived_sync(draw: random.Random, broker: BrokerProcess, shim: Shim) -> None:
    shim.fail(Call.MSYNC, errno.EIO, draw.choice(("/consumequeue/", "/index/")), times=1)


PASSING: tuple[Fault, ...] = (
    full_disk,
    some_writes,
    read_only,
    config_files,
    file_size,
    descriptors,
    memory,
    clock,
)
ENDING = tuple(fault for fault in PASSING if fault not in (memory, descriptors))
"""A stop under these ends with one sentence; without memory or descriptors it may end otherwise."""
FINAL: tuple[Fault, ...] = (log_sync, derived_sync)
"""After these no message is accepted until a restart."""


def heal(broker: BrokerProcess, shim: Shim) -> None:
    shim.heal()
    for limit in (resource.RLIMIT_FSIZE, resource.RLIMIT_AS):
        resource.prlimit(broker.process.pid, limit, (UNLIMITED, UNLIMITED))
    hard = resource.prlimit(broker.process.pid, resource.RLIMIT_NOFILE)[1]
    resource.prlimit(broker.process.pid, resource.RLIMIT_NOFILE, (hard, hard))
