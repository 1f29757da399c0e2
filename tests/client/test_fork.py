"""Processes that fork, with real sockets: a child that uses its parent's objects is refused, one that makes its own
works, and neither disturbs the parent."""

import asyncio
import json
import multiprocessing
import subprocess
import sys
from pathlib import Path

import pytest

from firearrow.client import blocking
from firearrow.client.base.errors import NotRunning
from firearrow.client.base.message import Message
from firearrow.client.base.options import ConsumeFromWhere, PullConsumerOptions
from firearrow.client.send.producer import Producer
from tests.client.conftest import unique
from tests.client.consumers import Topics
from tests.support.forked import forked

FIRST = PullConsumerOptions(from_where=ConsumeFromWhere.FIRST_OFFSET)
PREFORK = """
import asyncio, json, os, signal, sys, threading
from firearrow.client import Message, NotRunning, Producer, PushConsumer, blocking

name_server, topic, workers = sys.argv[1], sys.argv[2], int(sys.argv[3])
started = blocking.Producer("started", name_server=name_server).start()  # what a service makes when it is preloaded
ids = [started.send(Message(topic, b"master")).message_id]
blocking_made = blocking.Producer("made", name_server=name_server)
made = Producer("made-async", name_server=name_server)

def refusal(use):
    try:
        use()
    except NotRunning as error:
        return str(error)
    return "not refused"

def sockets():
    return {os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")
            if os.path.exists(f"/proc/self/fd/{fd}")} - {"/dev/null"}

async def own(number):
    async with made:  # was not started before the fork: it starts afresh
        results = [await made.send(Message(topic, b"%d" % number)) for _ in range(20)]
    return [result.message_id for result in results]

def work(number):
    report = {
        "refused": [refusal(lambda: started.send(Message(topic, b"shared"))),
                    refusal(lambda: started.submit(Message(topic, b"shared"))),
                    refusal(blocking_made.start), refusal(started.close)],
        "health": [started.health.running, started.health.last_error, started.health.brokers],
        "ids": asyncio.run(own(number)),
    }
    with blocking.Producer("worker", name_server=name_server) as producer:
        report["ids"] += [producer.send(Message(topic, b"%d" % number)).message_id for _ in range(20)]
    return report

children, pipes = [], []
for number in range(workers):
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        os.write(writing, json.dumps(work(number)).encode())
        os.close(writing)
        sys.exit(0)  # with the hooks of a usual end
    os.close(writing)
    children.append(child)
    pipes.append(os.fdopen(reading))
reports = [json.loads(pipe.read()) for pipe in pipes]
ends = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
ids += [started.send(Message(topic, b"after")).message_id for _ in range(20)]  # as if nothing was
print(json.dumps({"ids": ids, "reports": reports, "ends": ends, "healthy": started.health.running,
                  "last_error": started.health.last_error}))
"""


def test_a_preforking_server(name_server: str, topics: Topics, tmp_path: Path) -> None:
    """As gunicorn with `preload_app`: the master has made producers, and its workers end while it goes on."""
    topic, script = topics(queues=1), tmp_path / "prefork.py"
    script.write_text(PREFORK)
    done = subprocess.run(
        [sys.executable, str(script), name_server, topic, "3"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    found = json.loads(done.stdout)
    assert found["ends"] == [0, 0, 0]
    assert (found["healthy"], found["last_error"]) == (True, None)
    for report in found["reports"]:
        assert all("before a fork" in text and "child" in text for text in report["refused"]), report
        running, error, brokers = report["health"]
        assert (running, brokers) == (False, [])
        assert "before a fork" in error
    ids = [one for report in (found, *found["reports"]) for one in report["ids"]]
    assert len(ids) == len(set(ids)) == 21 + 3 * 40, "two processes never make the same message id"
    with blocking.Admin(name_server=name_server) as admin:
        [queue] = admin.queues(topic)
        assert admin.max_offset(queue) == len(ids), "nothing was sent through the parent's connections"


def _in_child(name_server: str, topic: str) -> str:
    with blocking.Producer(unique("child"), name_server=name_server) as producer:
        return producer.send(Message(topic, b"child")).message_id


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_children_of_multiprocessing(name_server: str, topics: Topics, method: str) -> None:
    topic = topics(queues=1)
    context = multiprocessing.get_context(method)
    with blocking.Producer(unique("parent"), name_server=name_server) as producer:
        ids = {producer.send(Message(topic, b"parent")).message_id}
        with context.Pool(2) as pool:
            ids |= set(pool.starmap(_in_child, [(name_server, topic)] * 4))
        with pytest.raises(TypeError, match="create one in each process"):
            context.Process(
                target=print, args=(producer,)
            ).start() if method == "spawn" else producer.__reduce_ex__(2)
        ids.add(producer.send(Message(topic, b"parent")).message_id)
    assert len(ids) == 6


async def test_a_child_of_a_running_loop(name_server: str, topics: Topics) -> None:
    """The loop's own process goes on: its sockets, and what its selector watches, are not touched by the child."""
    topic = topics(queues=1)
    async with Producer(unique("p"), name_server=name_server) as producer:
        await producer.send(Message(topic, b"0"))

        def use() -> str:
            async def send() -> str:
                try:
                    await producer.send(Message(topic, b"1"))
                except NotRunning as error:
                    refused = str(error)
                async with Producer(unique("child"), name_server=name_server) as own:
                    await own.send(Message(topic, b"1"))
                return refused

            return asyncio.run(send())

        refused = await asyncio.to_thread(forked, use)
        assert refused == "this Producer was started before a fork: create another one in the child process"
        assert (await producer.send(Message(topic, b"2"))).queue_offset == 2
