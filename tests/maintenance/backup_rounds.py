"""Backups of a running broker, round after round: `python -m tests.maintenance.backup_rounds --rounds 20 --seed 1`.

Each round sends on several connections, takes copies at random moments into one target, sharing files or not, kills the
broker at random or stops it, and starts a broker on each copy: everything acknowledged before the copy began is there,
in order, and nothing that was not sent. One line per round; exit code 1 if a copy was not as promised.
"""

import argparse
import random
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from firearrow.broker.maintenance.backup import BackupOptions, backup
from firearrow.broker.maintenance.dump import RecordQuery, records
from firearrow.broker.maintenance.verify import VerifyOptions, verify
from tests.support.broker_process import BrokerProcess
from tests.support.requests import send

SMALL = (
    "mappedFileSizeCommitLog=262144",
    "mappedFileSizeConsumeQueue=2000",
    "maxHashSlotNum=500",
    "maxIndexNum=2000",
    "flushIntervalCommitLog=100",
)
SETTINGS = tuple(word for option in SMALL for word in ("--set", option))
QUEUES = 4
WAIT_S = 60


@dataclass
class Sender:
    """A connection that sends to one queue and keeps what was acknowledged."""

    queue_id: int
    acknowledged: list[bytes] = field(default_factory=list)
    more: threading.Condition = field(default_factory=threading.Condition)

    def wait_for(self, more: int) -> None:
        """Until that many more were acknowledged."""
        with self.more:
            least = len(self.acknowledged) + more
            assert self.more.wait_for(lambda: len(self.acknowledged) >= least, WAIT_S), (
                "nothing is sent any more"
            )

    def run(self, broker: BrokerProcess, stop: threading.Event) -> None:
        """Until `stop` is set or the broker is gone; messages in flight then may be stored or not."""
        try:
            with broker.connect() as connection:
                while not stop.is_set():
                    body = f"{self.queue_id}:{len(self.acknowledged)} ".encode() * (
                        1 + len(self.acknowledged) % 80
                    )
                    if send(connection, "Orders", body, self.queue_id, "red").code == 0:
                        with self.more:
                            self.acknowledged.append(body)
                            self.more.notify_all()
        except OSError:
            return


@contextmanager
def sending(broker: BrokerProcess, senders: list[Sender]) -> Iterator[None]:
    stop = threading.Event()
    threads = [threading.Thread(target=each.run, args=(broker, stop)) for each in senders]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def read_queues(store: Path) -> dict[int, list[bytes]]:
    """The content of the files, queue by queue."""
    said: list[str] = []
    found = {
        number: [record.body for record in records(str(store), RecordQuery("Orders", number), said.append)]
        for number in range(QUEUES)
        if (store / "consumequeue" / "Orders" / str(number)).is_dir()
    }
    assert not said, said
    return found


def check_copy(copy: Path, known: list[int], senders: list[Sender]) -> int:
    """A broker starts on the copy and stops; returns the number of messages in it."""
    with BrokerProcess(copy, *SETTINGS) as broker:
        assert broker.stop() == 0, broker.log.read_text()
    verified = verify(str(copy))
    assert verified.clean, verified.findings
    found = read_queues(copy)
    for sender, least in zip(senders, known, strict=True):
        bodies = found.get(sender.queue_id, [])
        assert bodies == sender.acknowledged[: len(bodies)], (
            f"queue {sender.queue_id} has messages that were not sent in this order"
        )
        assert len(bodies) >= least, (
            f"queue {sender.queue_id} has {len(bodies)}, and {least} were acknowledged"
        )
    return sum(map(len, found.values()))


def one_round(folder: Path, rng: random.Random, copies: int, most: int = 700) -> tuple[int, int, int]:
    """(Messages sent, messages in the copies, bytes shared or kept)."""
    senders = [Sender(number) for number in range(QUEUES)]
    root, target = folder / "store", folder / "copy"
    held = shared = 0
    taken = []
    with BrokerProcess(root, *SETTINGS) as broker:
        with sending(broker, senders):
            for number in range(copies):
                rng.choice(senders).wait_for(rng.randrange(20, most))
                known = [len(each.acknowledged) for each in senders]
                wanted = BackupOptions(links=rng.random() < 0.5, verify=True, jobs=1)
                made, verified = backup(str(root), target, wanted)
                assert verified is not None
                assert verified.clean, verified.findings
                live = verify(str(root), VerifyOptions(jobs=1))
                assert live.clean, live.findings
                shared += made.linked + made.kept
                taken.append((known, Path(shutil.copytree(target, folder / f"restored{number}"))))
            if rng.random() < 0.5:
                broker.kill()
        if broker.process.poll() is None:
            assert broker.stop() == 0, broker.log.read_text()
            assert verify(str(root)).clean
    for known, copy in taken:
        held += check_copy(copy, known, senders)
    return sum(len(each.acknowledged) for each in senders), held, shared


def rounds(count: int, seed: int, copies: int = 3) -> None:
    """AssertionError: a copy was not as promised; its folder is kept."""
    total = [0, 0, 0]
    for number in range(count):
        rng = random.Random(seed * 1_000_003 + number)
        folder = Path(tempfile.mkdtemp(prefix="firearrow-backup-"))
        seen = one_round(folder, rng, copies)
        total = [before + now for before, now in zip(total, seen, strict=True)]
        print(
            f"round {number}: sent {seen[0]}, in copies {seen[1]}, shared {seen[2] / 1e6:.1f} MB", flush=True
        )
        shutil.rmtree(folder)
    sums = f"sent {total[0]}, in copies {total[1]}, shared {total[2] / 1e6:.1f} MB"
    print(f"{count} rounds, {count * copies} copies: {sums}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Backups of a running broker, round after round.")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    rounds(given.rounds, given.seed)
