"""A store that an older version and this one open in turn, as docs/UPGRADE.md has it.

`python -m tests.packaging.upgrade` runs it.

The older version is a commit of this repository, built in `build/upgrade`; another one can be named. Each version
leaves messages, a delayed one, a timer message and the progress of a group; the next one delivers all of them once, and
finds messages by their keys. First the broker stops cleanly between the versions, then it is killed: then a group may
get messages again, and none is lost. At the end the store is verified.
"""

import asyncio
import io
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from pathlib import Path

from firearrow.client import (
    Admin,
    ConsumeFromWhere,
    Message,
    Producer,
    PushConsumer,
    PushConsumerOptions,
    ReceivedMessage,
)
from firearrow.client.local_broker import LocalBroker

ROOT = Path(__file__).resolve().parents[2]
OLDER = "22e41f66cb10180b39aa43300df49fc7e27d33d0"
"""Before the packages got their present names: no deleted topics or locks among its config files."""
TOPIC, GROUP = "upgrade", "upgrade-readers"
PLAIN = 200
DELAY_LEVEL, TIMER_S = 2, 6.0
"""Both are due after some 5 s, when the other version runs."""
WAIT_S, QUIET_S, SAVED_S = 60, 3, 6
"""`SAVED_S`: progress is saved every 5 s (flushConsumerOffsetInterval)."""
PLAN = (
    ("older", False),
    ("this", False),
    ("older", False),
    ("this", True),
    ("older", True),
    ("this", False),
)
"""Version, and whether it is killed at the end."""
LOOPBACK = "listening on loopback only"


def built(commit: str) -> Path:
    """The folder that goes on PYTHONPATH for this version. SystemExit: it is not there or does not build."""
    folder = ROOT / "build" / "upgrade" / commit
    stamp = folder / ".built"
    if stamp.exists():
        return folder / "build" / "shape"
    archive = subprocess.run(["git", "-C", str(ROOT), "archive", commit], capture_output=True, check=False)
    if archive.returncode:
        raise SystemExit(f"the clone has no commit {commit}: fetch the whole history, or name another commit")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(folder, filter="data")
    print(f"building {commit} (some minutes) ...", flush=True)
    build = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    done = subprocess.run(build, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{commit} was not built:\n{done.stderr[-2000:]}")
    stamp.touch()
    return folder / "build" / "shape"


class Upgrade:
    """One store. `waiting`: the bodies that the next version has to deliver."""

    def __init__(self, folder: Path, older: Path) -> None:
        self._store = folder / "store"
        self._environments = {"older": {"PYTHONPATH": str(older)}, "this": {"PYTHONPATH": ""}}
        self._phase = 0
        self._keys: list[str] = []
        self._late: list[str] = []
        self.waiting: list[str] = []

    def run(self, version: str, *, killed_before: bool, kill: bool) -> None:
        """Start this version, deliver what waits, leave messages to the next one, and stop it or kill it."""
        broker = LocalBroker(self._store, environment=self._environments[version])
        logged = len(broker.log.read_text())
        with broker:
            again = asyncio.run(self._deliver(broker.name_server, repeats=killed_before))
            asyncio.run(self._leave(broker.name_server))
            if not kill:
                assert broker.stop() == 0
        lines = [line for line in broker.log.read_text()[logged:].splitlines() if LOOPBACK not in line]
        if not killed_before:
            assert not lines, f"{version} logs: {lines}"
        ended = "killed" if kill else "stopped"
        print(
            f"{version} version: all delivered, {again} of them again, {len(self._keys)} keys found, {ended}",
            flush=True,
        )

    async def _deliver(self, name_server: str, *, repeats: bool) -> int:
        """How many messages came again. AssertionError: one did not come, or came again after a clean stop."""
        expected, received, complete = Counter(self.waiting), Counter[str](), asyncio.Event()
        options = PushConsumerOptions(from_where=ConsumeFromWhere.FIRST_OFFSET)
        consumer = PushConsumer(GROUP, name_server=name_server, options=options)

        @consumer.subscribe(TOPIC)
        async def handle(messages: list[ReceivedMessage]) -> None:
            received.update((message.body or b"").decode() for message in messages)
            if not expected - received:
                complete.set()

        if expected:
            async with consumer, asyncio.timeout(WAIT_S):
                await complete.wait()
                await asyncio.sleep(SAVED_S if repeats else QUIET_S)
        again = received - expected
        assert repeats or not again, f"delivered again: {sorted(again)[:5]}"
        assert set(again) <= {*self._keys, *self._late}, f"never sent: {sorted(again)[:5]}"
        async with Admin(name_server=name_server) as admin:
            for key in self._keys[:: max(1, len(self._keys) // 50)]:
                found = await admin.messages_by_key(TOPIC, key)
                assert key in {(message.body or b"").decode() for message in found}, (
                    f"{key} is not found by its key"
                )
        return again.total()

    async def _leave(self, name_server: str) -> None:
        self._phase += 1
        bodies = [f"{self._phase}-{number}" for number in range(PLAIN)]
        messages = [Message(TOPIC, body.encode(), keys=[body]) for body in bodies]
        delayed, timed = f"{self._phase}-delayed", f"{self._phase}-timed"
        messages.append(Message(TOPIC, delayed.encode(), keys=[delayed], delay_level=DELAY_LEVEL))
        messages.append(Message(TOPIC, timed.encode(), keys=[timed], delay_s=TIMER_S))
        async with Producer("upgrade-writers", name_server=name_server) as producer:
            for message in messages:
                await producer.send(message)
        self.waiting = [*bodies, delayed, timed]
        self._keys += bodies
        self._late += [delayed, timed]

    def verify(self) -> None:
        """This version finds nothing wrong in the store. SystemExit with the findings."""
        program = "import sys; from firearrow.client.cli.main import main; main()"
        command = [sys.executable, "-c", program, "store", "verify", str(self._store)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"the store is not clean:\n{done.stdout}{done.stderr}")
        print("verified: the store is clean")


def main() -> None:
    older = built(sys.argv[1] if len(sys.argv) > 1 else OLDER)
    with tempfile.TemporaryDirectory(prefix="firearrow-upgrade-") as name:
        upgrade = Upgrade(Path(name), older)
        killed = False
        for version, kill in PLAN:
            upgrade.run(version, killed_before=killed, kill=kill)
            killed = kill
        upgrade.verify()


if __name__ == "__main__":
    main()
