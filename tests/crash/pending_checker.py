"""PendingChecker: starts a broker's services on a folder as a power cut left it, and checks the pending work.

First the broker is killed at some step, then it runs to the end: every timer, delay and transaction is delivered, pops
are redelivered unless they were acknowledged. Promises hold after a kill and, under SYNC_FLUSH, after a power cut.
After a power cut under ASYNC_FLUSH what the log still contains is pending as before, and may be delivered twice.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from firearrow._native.store.files.errors import StoreError
from firearrow.broker.base.errors import StartError
from firearrow.broker.timers import checkpoint
from tests.crash.promises import Promises, Sent
from tests.crash.restarted_services import RestartedServices
from tests.integration.pops import GROUP

STEPS_MAX = 400
ROUND_MS, ROUNDS = 500, 40
SLOWER = {"transactionCheckInterval": "400"}


@contextmanager
def boot(root: Path, *, another: bool) -> Iterator[None]:
    """After a power cut the machine has another boot id."""
    before, boot_id = checkpoint.BOOT_ID, root.with_name("boot_id")
    try:
        if another:
            boot_id.write_text("after the cut")
            checkpoint.BOOT_ID = boot_id
        yield
    finally:
        checkpoint.BOOT_ID = before


class PendingChecker:
    """`now_ms` is after everything that was recorded."""

    def __init__(self, settings: dict[str, str], now_ms: int) -> None:
        self._settings = settings | SLOWER
        self._now_ms = now_ms
        self._sync_flush = settings.get("flushDiskType") == "SYNC_FLUSH"

    def faults(self, root: Path, promises: Promises, *, kill: bool, steps: int) -> list[str]:
        """What is wrong with the folder, which is changed. The loop runs `steps` steps before a kill."""
        with boot(root, another=not kill):
            try:
                first = RestartedServices(root, self._settings, self._now_ms)
                end = first.store.written
                first.step(steps % STEPS_MAX)
                first.kill()
                second = RestartedServices(root, self._settings, first.clock.now_ms() + 1)
            except (StoreError, StartError, OSError, ValueError) as error:
                return [f"{type(error).__name__}: {error}"]
            try:
                faults = self._run(second, promises, end, binding=kill or self._sync_flush)
                return faults + _renamed_faults(root)
            finally:
                second.kill()

    def _run(self, broker: RestartedServices, promises: Promises, end: int, *, binding: bool) -> list[str]:
        """`end` of the log as it was found: what was sent and is after it is lost."""
        low = broker.store.min_physical
        asked = self._settle(broker, promises)
        there = Promises(**{name: getattr(promises, name) for name in Promises.__slots__})
        for name in ("later", "halves", "sent"):
            known: dict[bytes, Sent] = getattr(promises, name)
            setattr(there, name, {body: sent for body, sent in known.items() if low <= sent.at < end})
        return [
            *_later_faults(broker, there, binding=binding),
            *_half_faults(broker, there, asked, binding=binding),
            *_pop_faults(broker, there, binding=binding),
            *_idle_faults(broker),
        ]

    def _settle(self, broker: RestartedServices, promises: Promises) -> set[bytes]:
        """Answer every check, as was decided or with a commit; returns the bodies that were checked."""
        asked: set[bytes] = set()
        for _ in range(ROUNDS):
            broker.run(ROUND_MS)
            checks = broker.asked()
            for request, record in checks:
                asked.add(record.body)
                broker.decide(request, commit=promises.deciding.get(record.body, True))
        return asked


def _later_faults(broker: RestartedServices, promises: Promises, *, binding: bool) -> list[str]:
    faults = []
    for topic in ("Delayed", "Timed"):
        found = broker.bodies(topic)
        due = {body for body, sent in promises.later.items() if sent.topic == topic}
        faults += _missing(topic, due - promises.recalling, found)
        if binding:
            faults += _twice(topic, found)
    return faults


def _half_faults(
    broker: RestartedServices, promises: Promises, asked: set[bytes], *, binding: bool
) -> list[str]:
    found = broker.bodies("Paid")
    committed = {body for body in promises.halves if promises.deciding.get(body, True)}
    faults = _missing("Paid", committed, found)
    rolled_back = {body for body, commit in promises.deciding.items() if not commit}
    if wrong := rolled_back & found.keys():
        faults.append(f"{len(wrong)} were rolled back and are visible: {sorted(wrong)[:3]}")
    if binding:
        faults += _twice("Paid", found)
        if again := asked & promises.decided.keys():
            faults.append(f"{len(again)} were decided and are checked: {sorted(again)[:3]}")
    return faults


def _pop_faults(broker: RestartedServices, promises: Promises, *, binding: bool) -> list[str]:
    """What the group would get if it popped now."""
    coming: set[bytes] = set()
    topics = {sent.topic for sent in promises.sent.values()}
    for topic in topics | {f"%RETRY%{GROUP}_{topic}" for topic in topics}:
        for record in broker.records(topic):
            if record.queue_offset >= broker.tables.offsets.committed(GROUP, topic, record.queue_id):
                coming.add(record.body)
    faults = []
    if lost := promises.sent.keys() - promises.acking - coming:
        faults.append(f"{len(lost)} of {len(promises.sent)} are not popped again: {sorted(lost)[:3]}")
    if binding and (back := promises.sent.keys() & promises.acked & coming):
        faults.append(f"{len(back)} were acknowledged and are popped again: {sorted(back)[:3]}")
    return faults


def _idle_faults(broker: RestartedServices) -> list[str]:
    """Nothing is left in the wheel."""
    assert broker.services is not None
    info = broker.services.timer_info()
    names = ("timerOffsetBehind", "timerCongestNum", "timerReadBehind")
    return [f"{name} is {info[name]} when all is done" for name in names if info[name] != "0"]


def _renamed_faults(root: Path) -> list[str]:
    """A kill is no damage: files that it leaves are used, never renamed."""
    renamed = sorted(str(path.relative_to(root)) for path in root.rglob("*.damaged-*"))
    return [f"{', '.join(renamed)} renamed"] if renamed else []


def _missing(topic: str, due: set[bytes], found: Counter[bytes]) -> list[str]:
    lost = due - found.keys()
    return [f"{topic}: {len(lost)} of {len(due)} do not come: {sorted(lost)[:3]}"] if lost else []


def _twice(topic: str, found: Counter[bytes]) -> list[str]:
    twice = sorted(body for body, count in found.items() if count > 1)
    return [f"{topic}: {len(twice)} of {len(found)} come twice: {twice[:3]}"] if twice else []
