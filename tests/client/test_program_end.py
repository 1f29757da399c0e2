"""Programs that end while their broker hangs: what they submitted arrives later, or stderr reports how much did not.

Each script is a real process. All of them run against one broker, which is stopped (SIGSTOP) while they end.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from firearrow.client import LocalBroker, Message
from firearrow.client.blocking import Admin, Producer
from firearrow.client.pytest_plugin import _messages_in
from tests.support.fork_server import ForkedCommand

ROOT = Path(__file__).parents[2]
COUNT = 200
HANG_S = 2.0
"""Longer than the scripts' timeout of a send."""

HEAD = """
import asyncio, gc, multiprocessing, os, signal, sys, threading, time
from concurrent.futures import ProcessPoolExecutor
from firearrow.client import Message, Producer, ProducerOptions, RequestTimeout, blocking

name_server, topic, drain_s = sys.argv[1], sys.argv[2], float(sys.argv[3])
options = ProducerOptions(send_timeout_s=0.5, drain_s=drain_s)

def ready():
    print("ready", flush=True)
    sys.stdin.readline()

def started(**others):
    producer = blocking.Producer("script", name_server=name_server, options=options, **others).start()
    while True:
        try:
            producer.send(Message(topic, b"first"))
            return producer
        except RequestTimeout:  # a busy machine
            pass

def submit(producer):
    for number in range(COUNT):
        producer.submit(Message(topic, b"%d" % number))

async def started_async():
    producer = await Producer("script", name_server=name_server, options=options).start()
    await producer.send(Message(topic, b"first"))
    await asyncio.to_thread(ready)
    return producer
"""
SUBMITTED = """
producer = started()
ready()
submit(producer)
"""
ASYNC = """
async def main():
    producer = await started_async()
    submit(producer)
"""
IN_CHILD = """
def work():
    producer = started()
    ready()
    submit(producer)
    globals()["kept"] = producer

def ready():
    print("ready", flush=True)
    while not os.path.exists(sys.argv[4]):
        time.sleep(0.01)
"""
SCRIPTS = {
    "never closed": SUBMITTED,
    "with": """
with blocking.Producer("script", name_server=name_server, options=options) as producer:
    producer.send(Message(topic, b"first"))
    ready()
    submit(producer)
""",
    "close": SUBMITTED + "producer.close()\n",
    "sys.exit": SUBMITTED + "sys.exit(3)\n",
    "exception": SUBMITTED + "raise ValueError('broken')\n",
    "interrupt": SUBMITTED
    + "signal.signal(signal.SIGINT, signal.default_int_handler)\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(9)\n",
    "daemon thread": """
producer = started()
ready()
thread = threading.Thread(target=submit, args=(producer,), daemon=True)
thread.start()
time.sleep(0.2)
""",
    "results kept, but not read": """
producer = started()
ready()
kept = [producer.submit(Message(topic, b"%d" % number)) for number in range(COUNT)]
""",
    "dropped": """
producer = started()
ready()
submit(producer)
del producer
gc.collect()
time.sleep(drain_s + 2.5)
os._exit(0)
""",
    "batches": """
options = ProducerOptions(send_timeout_s=0.5, drain_s=drain_s, auto_batch=True)
"""
    + SUBMITTED,
    "two producers": SUBMITTED + "other = blocking.Producer('other', name_server=name_server).start()\n",
    "os.fork": IN_CHILD
    + """
if os.fork() == 0:
    work()
else:
    os.wait()
""",
    "fork after a producer": IN_CHILD
    + """
parent = blocking.Producer("parent", name_server=name_server, options=options).start()
if os.fork() == 0:
    work()
else:
    os.wait()
""",
    "multiprocessing fork": IN_CHILD
    + """
child = multiprocessing.get_context("fork").Process(target=work)
child.start()
child.join()
""",
    "process pool": IN_CHILD
    + """
with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
    pool.submit(work).result()
""",
    "asyncio with": """
async def main():
    async with Producer("script", name_server=name_server, options=options) as producer:
        await producer.send(Message(topic, b"first"))
        await asyncio.to_thread(ready)
        submit(producer)
asyncio.run(main())
""",
    "asyncio never closed": ASYNC + "asyncio.run(main())\n",
    "asyncio exception": ASYNC + "    raise ValueError('broken')\nasyncio.run(main())\n",
    "asyncio interrupt": ASYNC
    + "    os.kill(os.getpid(), signal.SIGINT)\n    await asyncio.sleep(9)\n"
    + "signal.signal(signal.SIGINT, signal.default_int_handler)\nasyncio.run(main())\n",
    "loop not closed": ASYNC + "loop = asyncio.new_event_loop()\nloop.run_until_complete(main())\n",
    "loop in a daemon thread": ASYNC
    + """
loop = asyncio.new_event_loop()
threading.Thread(target=loop.run_forever, daemon=True).start()
asyncio.run_coroutine_threadsafe(main(), loop).result()
""",
    "uvloop": ASYNC + "import uvloop\nuvloop.run(main())\n",
}
REPRESENTATIVES = (
    "never closed",
    "interrupt",
    "dropped",
    "batches",
    "fork after a producer",
    "process pool",
    "asyncio with",
    "asyncio never closed",
    "loop in a daemon thread",
    "uvloop",
)
"""One of each kind of end."""
CODES = {"sys.exit": 3, "exception": 1, "asyncio exception": 1, "interrupt": -2, "asyncio interrupt": -2}


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    with LocalBroker() as broker:
        yield broker


def topic_of(name: str, drain_s: float) -> str:
    return re.sub("[ .,]+", "-", f"{name}-{drain_s:g}")


class Script:
    """A script that sends its first message, and then waits for `go`."""

    def __init__(self, broker: LocalBroker, name: str, text: str, drain_s: float, flag: Path) -> None:
        self.name, self.flag = name, flag
        self.topic = topic_of(name, drain_s)
        program = f"COUNT = {COUNT}\n" + HEAD + text
        self.process = ForkedCommand(
            [sys.executable, "-c", program, broker.name_server, self.topic, str(drain_s), str(flag)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def await_ready(self) -> None:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line == "ready\n", (self.name, line, self.process.communicate())

    def go(self) -> None:
        self.flag.touch()
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self) -> str:
        """What it wrote to stderr."""
        _, errors = self.process.communicate(timeout=60)
        assert self.process.returncode == CODES.get(self.name, 0), (self.name, errors)
        return errors


@contextmanager
def running(
    broker: LocalBroker, drain_s: float, flag: Path, texts: Mapping[str, str]
) -> Iterator[list[Script]]:
    scripts: list[Script] = []
    try:
        with Admin(broker.name_server) as admin:
            for name in texts:
                admin.create_topic(topic_of(name, drain_s), queues=2)
        for name, text in texts.items():
            scripts.append(Script(broker, name, text, drain_s, flag))
        for script in scripts:
            script.await_ready()
        yield scripts
    finally:
        for script in scripts:
            with suppress(ProcessLookupError):
                os.killpg(script.process.pid, signal.SIGKILL)
            script.process.communicate(timeout=10)


@contextmanager
def hanging(broker: LocalBroker) -> Iterator[None]:
    broker.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        broker.process.send_signal(signal.SIGCONT)


def bodies(broker: LocalBroker, topic: str, count: int) -> set[bytes]:
    return {message.body for message in _messages_in(broker.name_server, topic, count, 20)}


def test_what_was_submitted_arrives_when_the_broker_answers_again(
    broker: LocalBroker, tmp_path: Path
) -> None:
    wanted = {b"first"} | {b"%d" % number for number in range(COUNT)}
    with running(broker, 20, tmp_path / "go", SCRIPTS) as scripts:
        with hanging(broker):
            for script in scripts:
                script.go()
            time.sleep(HANG_S)
        for script in scripts:
            errors = script.end() if script.name != "dropped" else ""
            missing = wanted - bodies(broker, script.topic, COUNT + 1)
            assert (script.name, len(missing)) == (script.name, 0), errors
            assert "were not sent" not in errors


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(REPRESENTATIVES, id="representatives"),
        pytest.param(sorted(SCRIPTS.keys() - REPRESENTATIVES), id="others", marks=pytest.mark.long),
    ],
)
def test_what_is_lost_is_reported_with_its_reason(
    broker: LocalBroker, tmp_path: Path, names: list[str]
) -> None:
    """The broker hangs for longer than a program waits at its end."""
    texts = {name: SCRIPTS[name] for name in names}
    with running(broker, 0.7, tmp_path / "go", texts) as scripts, hanging(broker):
        for script in scripts:
            script.go()
        for script in scripts:
            errors = script.end()
            reports = [line for line in errors.splitlines() if line.startswith("firearrow: ")]
            assert len(reports) == 1, (script.name, errors)
            assert (
                f"{COUNT} messages of producer script were not sent (no broker has confirmed them): "
                in reports[0]
            ), script.name
            assert "RequestTimeout" in reports[0], (script.name, errors)
            assert "never retrieved" not in errors, script.name


def test_an_interrupt_ends_the_wait_of_a_program_that_ends(broker: LocalBroker, tmp_path: Path) -> None:
    """One is enough, and what it gives up is reported once."""
    texts = {"blocking": SUBMITTED + "ready()\n", "loop not closed": SCRIPTS["loop not closed"]}
    with running(broker, 30, tmp_path / "go", texts) as scripts, hanging(broker):
        for script in scripts:
            script.go()
        scripts[0].go()
        time.sleep(1)  # until both wait for what they submitted, which nothing shows
        for script in scripts:
            script.process.send_signal(signal.SIGINT)
            _, errors = script.process.communicate(timeout=6)
            reports = [line for line in errors.splitlines() if line.startswith("firearrow: ")]
            assert len(reports) == 1, (script.name, errors)
            assert f"{COUNT} messages of producer script were not sent" in reports[0]


OFFSETS = """
from firearrow.client import ConsumeFromWhere, PullConsumerOptions
options = PullConsumerOptions(from_where=ConsumeFromWhere.FIRST_OFFSET)
consumer = blocking.PullConsumer("reader-%d" % drain_s, name_server=name_server, options=options).start()
consumer.subscribe(topic)
count = 0
while count < COUNT:
    count += len(consumer.poll(5))
ready()
"""
ONEWAY = """
async def main():
    async with Producer("script", name_server=name_server, options=options) as producer:
        await producer.send(Message(topic, b"first"))
        await asyncio.to_thread(ready)
        sent = 0
        try:
            while True:
                await producer.send_oneway(Message(topic, b"%d " % sent + b"x" * 3_000))
                sent += 1
        except firearrow.client.ClientError:
            print(sent, flush=True)
import firearrow.client
asyncio.run(main())
"""


@pytest.mark.parametrize("drain_s", [20, 0.7])
def test_offsets_and_one_way_messages(broker: LocalBroker, tmp_path: Path, drain_s: float) -> None:
    """Both leave in time, or stderr reports them: the broker hangs for 2 s, or on."""
    with Admin(broker.name_server) as admin, Producer("p", name_server=broker.name_server) as producer:
        topic = re.sub("[.]", "-", f"offsets-{drain_s:g}")
        admin.create_topic(topic, queues=2)
        for number in range(COUNT):
            producer.submit(Message(topic, b"%d" % number))
    names = {"offsets": OFFSETS, "one-way": ONEWAY}
    with running(broker, drain_s, tmp_path / "go", names) as (offsets, oneway):
        with hanging(broker):
            oneway.go()
            assert oneway.process.stdout is not None
            sent = int(oneway.process.stdout.readline())  # until the connection's buffer was full
            offsets.go()
            if drain_s < HANG_S:
                assert re.search(
                    r"firearrow: [12] offsets of consumer group reader-0 were not stored",
                    offsets.end(),
                )
                assert re.search(
                    r"firearrow: [1-9]\d* messages of producer script were not sent.*one-way", oneway.end()
                )
        if drain_s > HANG_S:
            assert (offsets.end(), oneway.end()) == ("", "")
            with Admin(broker.name_server) as admin:
                lag = admin.consumer_lag("reader-20", offsets.topic)
            assert lag.messages == 0
            assert len(bodies(broker, oneway.topic, sent + 1)) == sent + 1
