"""Compares clients in one run on FireArrow's broker: `python -m bench.clients`. Ratios are the result.

The broker runs on CPU 0; each client is a process on CPU 1, one at a time, in rounds of random order; a row
is the median of its rounds. Clients that this machine cannot run are skipped, with the reason. Each run
appends to bench/results.ndjson.
"""

import argparse
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench import servers
from bench.maven import class_path
from bench.programs import CACHE, ROOT, built
from bench.results import RESULTS, commit

CLIENT_CPU = 1
LIMIT_S = 150
BINDING = "rocketmq==0.4.4"
ROWS = {
    "send": "128 B sends, messages/s",
    "auto": "128 B sends in automatic batches, messages/s",
    "batch": "128 B in batches of 200, messages/s",
    "batch-large": "1 KiB in batches of 200, messages/s",
    "push": "1 KiB consumed, messages/s",
    "push-single": "1 KiB consumed one for each call, messages/s",
    "ping": "128 B one by one, round trips/s",
}
NOT_BINDING = ("auto", "batch-large", "push-single")
"""Rows without the C++ binding: it has no automatic batches, and its handler gets one message a call anyway."""
BARE = {"bare": "a bare ping of the broker, round trips/s", "echo": "a bare ping of an echo, round trips/s"}


@dataclass(frozen=True)
class Client:
    """`command` is completed by workload, name server, topic and number of messages."""

    name: str
    command: list[str]

    def run(self, workload: str, where: str, topic: str, messages: int) -> dict[str, float]:
        words = [*self.command, workload, where, topic, str(messages)]
        if len(os.sched_getaffinity(0)) > 1:
            words = ["taskset", "--cpu-list", str(CLIENT_CPU), *words]
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        if done.returncode:
            raise RuntimeError(f"{self.name} {workload}: {(done.stdout + done.stderr)[-1000:]}")
        found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        return found


def ours() -> Client:
    return Client("firearrow", [sys.executable, "-m", "bench.client_firearrow"])


def java() -> Client:
    """RuntimeError: no Java 17 with Maven."""
    jars, classes = class_path(CACHE / "apache", *servers.APACHE), CACHE / "classes"
    classes.mkdir(parents=True, exist_ok=True)
    _run(["javac", "-cp", jars, "-d", str(classes), str(ROOT / "bench" / "java" / "ClientBench.java")])
    home = f"-Duser.home={CACHE}"
    return Client("java", ["java", "-Xmx1g", home, "-cp", f"{classes}:{jars}", "ClientBench"])


def binding() -> Client:
    """The C++ client's binding; its package carries the library for x86-64 only.

    RuntimeError: cannot be installed.
    """
    folder = CACHE / "binding"
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
    _run([str(python), "-m", "pip", "install", "-q", BINDING])
    _run([str(python), "-c", "import rocketmq.client"])
    return Client("c++ binding", [str(python), str(ROOT / "bench" / "client_binding.py")])


def answerer(kind: str = "answer") -> tuple[subprocess.Popen[str], str]:
    """Start the C server that only answers, compiled at first use; its process and address."""
    process = subprocess.Popen(
        ["taskset", "--cpu-list", str(servers.SERVER_CPU), str(built("answerer")), kind],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, f"127.0.0.1:{int(process.stdout.readline())}"


def _run(command: list[str]) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
    except subprocess.CalledProcessError as error:
        raise RuntimeError(f"{command[0]}: {(error.stdout + error.stderr).strip()[-300:]}") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RuntimeError(str(error)) from None


MAKERS: dict[str, Callable[[], Client]] = {"firearrow": ours, "java": java, "binding": binding}


def available(names: list[str]) -> list[Client]:
    clients = []
    for name in names:
        try:
            clients.append(MAKERS[name]())
        except RuntimeError as reason:
            print(f"{name} is left out: {reason}", file=sys.stderr)
    return clients


def messages_of(workload: str, messages: int) -> int:
    """Batches are quick and round trips are slow."""
    return {"batch": messages * 4, "ping": max(messages // 20, 1), "bare": max(messages // 20, 1)}.get(
        workload, messages
    )


def measured(
    clients: list[Client], name_server: str, echo: str, messages: int, rounds: int
) -> dict[str, dict[str, list[float]]]:
    """Row → client → rates."""
    ours().run("fill", name_server, "consumed", messages)
    found: dict[str, dict[str, list[float]]] = {}
    plan = [
        (workload, client)
        for workload in ROWS
        for client in clients
        if client.name != "c++ binding" or workload not in NOT_BINDING
    ] + [(bare, clients[0]) for bare in BARE]
    for number in range(rounds):
        random.Random(number).shuffle(plan)
        for workload, client in plan:
            print(
                f"\rround {number + 1}/{rounds}: {workload}, {client.name}" + " " * 20,
                end="",
                file=sys.stderr,
            )
            where = echo if workload == "echo" else name_server
            topic = "consumed" if workload.startswith("push") else "sent"
            count = messages // 20 or 1 if workload == "echo" else messages_of(workload, messages)
            rate = client.run(workload, where, topic, count)["rate"]
            found.setdefault(workload, {}).setdefault(client.name, []).append(rate)
    print(file=sys.stderr)
    return found


def table(found: dict[str, dict[str, list[float]]]) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for workload, label in (ROWS | BARE).items():
        medians = {name: round(statistics.median(rates)) for name, rates in found[workload].items()}
        row: dict[str, object] = {"row": label} | medians
        for name in medians.keys() - {"firearrow"}:
            row[f"ratio to {name}"] = round(medians["firearrow"] / medians[name], 2)
        rows.append(row)
    return rows


def main(arguments: list[str] | None = None) -> list[dict[str, object]]:
    parser = argparse.ArgumentParser(prog="python -m bench.clients", description=__doc__)
    parser.add_argument(
        "--messages", type=int, default=100_000, help="messages of one sample, a multiple of 200"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", nargs="+", choices=sorted(MAKERS), default=list(MAKERS))
    parser.add_argument("--set", action="append", default=[], help="KEY=VALUE for the broker")
    parser.add_argument("--no-record", action="store_true", help="do not append to bench/results.ndjson")
    given = parser.parse_args(arguments)
    clients = available(given.clients)
    with tempfile.TemporaryDirectory() as folder:
        broker = servers.firearrow(Path(folder), *given.set)
        echoes, echo = answerer("echo")
        try:
            name_server = "{}:{}".format(*broker.address)
            rows = table(measured(clients, name_server, echo, given.messages, given.rounds))
        finally:
            echoes.communicate(timeout=10)
            broker.stop()
    for figures in rows:
        print("  ".join(f"{name}: {value}" for name, value in figures.items()))
    if not given.no_record:
        line = {
            "at": int(time.time()),
            "commit": commit(),
            "machine": platform.platform(),
            "settings": given.set,
        }
        with RESULTS.open("a") as results:
            results.write(
                json.dumps(line | {"clients": [client.name for client in clients], "rows": rows}) + "\n"
            )
    return rows


if __name__ == "__main__":
    main()
