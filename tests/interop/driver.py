"""A client as a process that executes commands; see `java/driver/Driver.java` for the lines of the protocol.

A thread here reads its output; the test's thread sends commands and waits for events, each wait bounded.
"""

import contextlib
import json
import os
import select
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode

from tests.interop.toolchain import class_data, go_driver, java_class_path

Event = dict[str, Any]
ROOT = Path(__file__).resolve().parents[2]
JVMS = {"java5": "client5", "java4": "client4"}
"""Drivers that take seconds to start → the client on their class path."""


class Failed(Exception):
    """The operation failed in the client: `type`, `code` and the text of its exception; `cause`: that of its cause."""

    def __init__(self, event: Event) -> None:
        super().__init__(f"{event['type']} {event['code']}: {event['message']}")
        self.type: str = event["type"]
        self.code: int = event["code"]
        self.cause: str = event.get("cause", "")


class Driver:
    """`name`: `java5`, `java4`, `go`, or `python`, which is ours. `name_server` as `host:port`.

    `home` contains its logs and its local offsets. `keys`: access key and secret key, with which its clients sign.
    """

    def __init__(self, name: str, name_server: str, home: Path, keys: tuple[str, str] | None = None) -> None:
        self.name = name
        signed = {} if keys is None else {"INTEROP_ACCESS_KEY": keys[0], "INTEROP_SECRET_KEY": keys[1]}
        home.mkdir(parents=True, exist_ok=True)
        self.log = home / f"{name}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*_command(name, home), name_server],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=home,
                env=os.environ | signed | {"HOME": str(home), "PYTHONPATH": str(ROOT)},
            )
        self.events: list[Event] = []
        self._news = threading.Condition()
        self._ended = False
        self._read = 0
        threading.Thread(target=self._listen, name=f"{name} events", daemon=True).start()
        self.version = self._until_done({"ready"}, 60)[-1]["version"]

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            event = json.loads(line)
            with self._news:
                self.events.append(event)
                self._news.notify_all()
        with self._news:
            self._ended = True
            self._news.notify_all()

    def ask(self, operation: str, **parameters: object) -> list[Event]:
        """The operation's events but the last, `done`; `Failed` if it failed. A list gives a parameter many times."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{operation} {urlencode(parameters, doseq=True)}\n")
        self.process.stdin.flush()
        events = self._until_done({"done", "failed"}, 90)
        if events[-1]["event"] == "failed":
            raise Failed(events[-1])
        return [event for event in events[:-1] if "consumer" not in event]

    def _until_done(self, names: set[str], within_s: float) -> list[Event]:
        found: list[Event] = []

        def is_done() -> bool:
            while self._read < len(self.events):
                found.append(self.events[self._read])
                self._read += 1
                if found[-1]["event"] in names:
                    return True
            return False

        self._wait(is_done, within_s, lambda: f"{names}")
        return found

    def _wait(self, condition: Callable[[], bool], within_s: float, what: Callable[[], str]) -> None:
        deadline = time.monotonic() + within_s
        with self._news:
            while not condition():
                if self._ended:
                    raise AssertionError(f"{self.name} ended: {self.log.read_text()[-2000:]}")
                if not self._news.wait(deadline - time.monotonic()):
                    raise AssertionError(
                        f"{self.name}: {what()} did not come in {within_s} s: {self.events[-5:]}"
                    )

    def consumed(self, *consumers: str) -> list[Event]:
        """The messages that push consumers of these names have got so far."""
        with self._news:
            return [event for event in self.events if event.get("consumer") in consumers]

    def await_bodies(
        self, consumers: Iterable[str], bodies: Iterable[str], within_s: float = 40
    ) -> list[Event]:
        """Wait until the consumers together got each body at least as often as it is listed."""
        names, left = tuple(consumers), Counter(bodies)

        def is_awaited(event: Event) -> bool:
            if left[event["body"]] == 0:
                return False
            left[event["body"]] -= 1
            return True

        self._await_messages(names, is_awaited, left.total(), within_s)
        return self.consumed(*names)

    def await_count(self, consumer: str, count: int) -> None:
        self._await_messages((consumer,), lambda _: True, count, 40)

    def await_queues(self, consumer: str, count: int) -> None:
        """Wait until the consumer has begun `count` queues."""
        queues: set[object] = set()

        def is_first(event: Event) -> bool:
            known = event["queueId"] in queues
            queues.add(event["queueId"])
            return not known

        self._await_messages((consumer,), is_first, count, 60)

    def _await_messages(
        self, consumers: tuple[str, ...], is_awaited: Callable[[Event], bool], count: int, within_s: float
    ) -> None:
        """Each event is looked at once: thousands of messages wake us thousands of times."""
        seen = came = 0

        def all_came() -> bool:
            nonlocal seen, came
            new, seen = self.events[seen:], len(self.events)
            came += sum(event.get("consumer") in consumers and is_awaited(event) for event in new)
            return came >= count

        self._wait(all_came, within_s, lambda: f"{count - came} of {count} messages for {consumers}")

    def await_true(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until the events fulfil the condition."""
        self._wait(condition, 40, lambda: what)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def rest(self) -> bool:
        """Another driver is needed: a JVM stays, without producers; any other, or a failing one, stops: False."""
        if self.name in JVMS:
            with contextlib.suppress(Failed, AssertionError, OSError):
                self.ask("rest")
                return True
        self.stop()
        return False

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


def java(version: str, main: str, home: Path, heap: str, *properties: str) -> list[str]:
    """A JVM with that class path, which writes its logs to `home` and starts quickly."""
    home.mkdir(parents=True, exist_ok=True)
    class_path, shared = java_class_path(version), class_data(version)
    options = [
        heap,
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-Xlog:disable",  # that the shared classes are of another class path, which would go to stdout
        "-Xshare:auto",
        *([f"-XX:SharedArchiveFile={shared}"] if shared.exists() else []),
        f"-Duser.home={home}",
        *properties,
    ]
    return ["java", *options, "-cp", class_path, main]


def started(command: list[str], log: Path, line: bytes, wait_s: float) -> subprocess.Popen[bytes]:
    """The process once it has printed this; stderr goes to `log`. AssertionError: it ended, or was silent so long."""
    with log.open("wb") as errors:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors)
    assert process.stdout is not None
    output = b""
    while line not in output:
        ready = select.select([process.stdout], [], [], wait_s)[0]
        chunk = process.stdout.read1(1 << 16) if ready else b""  # type: ignore[attr-defined]
        if not chunk:
            end(process)
            raise AssertionError(f"{command[0]} did not start: {output.decode()} {log.read_text()[-2000:]}")
        output += chunk
    return process


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill it if it runs, and close its pipes."""
    if process.poll() is None:
        process.kill()
    process.wait(10)
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


def _command(name: str, home: Path) -> list[str]:
    if name == "go":
        return [str(go_driver())]
    if name == "python":
        return [sys.executable, "-m", "tests.interop.python"]
    version = JVMS[name]
    quick = "-Drocketmq.client.rebalance.waitInterval=500", "-Drocketmq.client.rebalance.minInterval=100"
    return java(version, "Driver", home, "-Xmx256m", *quick, f"-Drocketmq.home.dir={home}")
