"""The end of the blocking objects: interrupts, cancelled calls, the interpreter's end, forks and signals."""

import asyncio
import signal
import subprocess
import sys
import textwrap
from concurrent.futures import wait

import pytest

from firearrow.client import blocking
from firearrow.client.base.errors import ConfigError, NotRunning, TooManyRequests
from firearrow.client.base.message import Message, SendResult
from firearrow.client.base.unsent import UnreadFuture, Unsent
from firearrow.client.threads.handover import ThreadBridge
from firearrow.client.threads.loop_thread import LoopThread
from tests.client.test_blocking import ROOT, Topics, producer


def test_an_interrupt_cancels_what_is_waited_for() -> None:
    """In a separate process, which gets the signal however the tests were started, and while it waits: an interrupt
    between the acquiring of a lock and its `with` leaves it held (CPython)."""
    done = run_script(
        """
        import asyncio, os, signal, sys, threading, time
        from firearrow.client.threads.loop_thread import LoopThread

        signal.signal(signal.SIGINT, signal.default_int_handler)
        thread = LoopThread.current()
        started, cancelled = threading.Event(), threading.Event()

        async def forever():
            started.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.set()
                raise

        def interrupt():
            started.wait(10)
            while sys._current_frames()[threading.main_thread().ident].f_code.co_name != "wait":
                time.sleep(0.001)
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=interrupt).start()
        try:
            thread.run(forever)
        except KeyboardInterrupt:
            print("interrupted", cancelled.wait(10))
        """
    )
    assert done.stdout == "interrupted True\n", done.stderr


class Full:
    """Capacity for two."""

    in_flight_max = 2
    send_timeout_s = 0.05

    def __init__(self, wait: bool) -> None:
        self.wait_when_full = wait


@pytest.mark.parametrize("wait", [False, True])
def test_more_than_the_capacity_waits_or_is_refused(wait: bool) -> None:
    thread = LoopThread.current()
    bridge = ThreadBridge(thread, Full(wait), Unsent("{} lost"))
    sendings: list[asyncio.Future[SendResult]] = []

    def submit() -> asyncio.Future[SendResult]:
        sendings.append(thread.loop.create_future())
        return sendings[-1]

    futures = [bridge.submit(submit) for _ in range(2)]
    with pytest.raises(TooManyRequests):
        bridge.submit(submit)
    result = thread.call(lambda: sendings[0].set_result("sent"))  # type: ignore[arg-type]
    assert (result, futures[0].result(10)) == (None, "sent")
    third = bridge.submit(submit)
    thread.call(sendings[1].cancel)
    assert isinstance(futures[1].exception(10), NotRunning)
    thread.call(lambda: sendings[2].set_exception(ConfigError("broken")))
    assert isinstance(third.exception(10), ConfigError)


def test_what_was_cancelled_before_the_loop_saw_it_is_not_sent() -> None:
    thread = LoopThread.current()
    bridge = ThreadBridge(thread, Full(wait=False), Unsent("{} lost"))
    sent: list[int] = []

    def submit() -> asyncio.Future[SendResult]:
        sent.append(1)
        return thread.loop.create_future()

    def in_loop() -> list[bool]:
        return [bridge.submit(submit).cancel() for _ in range(2)]

    assert thread.call(in_loop) == [True, True]
    thread.call(lambda: None)
    assert sent == []
    assert not bridge.submit(submit).done(), "there is capacity again"


# ---- processes ----


def run_script(text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(text), *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_what_is_open_at_the_end_of_the_interpreter_is_closed(name_server: str, topics: Topics) -> None:
    """Messages in flight arrive, running handlers finish, and nothing hangs."""
    topic = topics()
    done = run_script(
        """
        import sys, threading, time
        from firearrow.client import Message, PushConsumerOptions, ConsumeFromWhere
        from firearrow.client.blocking import Producer, PushConsumer

        server, topic = sys.argv[1:]
        began = threading.Event()

        def handler(messages):
            began.set()
            time.sleep(0.5)
            print("handled", flush=True)

        options = PushConsumerOptions(from_where=ConsumeFromWhere.FIRST_OFFSET)
        consumer = PushConsumer("at-exit-" + topic, name_server=server, options=options)
        consumer.subscribe(topic, handler)
        consumer.start()
        producer = Producer("at-exit-" + topic, name_server=server).start()
        producer.send(Message(topic, b"first"))
        assert began.wait(20)
        for number in range(100):
            producer.submit(Message(topic, b"%d" % number))
        """,
        name_server,
        topic,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("handled")
    with blocking.Admin(name_server) as admin:
        assert sum(queues.max_offset for queues in admin.topic_stats(topic).values()) == 101


def test_after_a_fork_old_objects_refuse_and_new_ones_work(name_server: str, topics: Topics) -> None:
    topic = topics()
    done = run_script(
        """
        import os, sys
        from firearrow.client import Message, NotRunning
        from firearrow.client.blocking import Producer

        server, topic = sys.argv[1:]
        producer = Producer("forked-" + topic, name_server=server).start()
        producer.send(Message(topic, b"parent"))
        child = os.fork()
        if child == 0:
            try:
                producer.send(Message(topic, b"never"))
            except NotRunning as error:
                print(error, flush=True)
            try:
                producer.submit(Message(topic, b"never"))
            except NotRunning as error:
                print("submit too", flush=True)
            with Producer("child-" + topic, name_server=server) as own:
                own.send(Message(topic, b"child"))
            print("child sent", flush=True)
            sys.exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        producer.send(Message(topic, b"parent again"))
        producer.close()
        print("parent sent")
        """,
        name_server,
        topic,
    )
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert "made before a fork" in lines[0]
    assert lines[1:] == ["submit too", "child sent", "parent sent"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_a_running_consumer(name_server: str, topics: Topics, number: signal.Signals) -> None:
    topic = topics()
    with producer(name_server) as sending:
        sending.send(Message(topic, b"body"))
    process = subprocess.Popen(
        [
            sys.executable,
            "-W",
            "error",
            "-c",
            textwrap.dedent(
                """
            import sys, time
            from firearrow.client import PushConsumerOptions, ConsumeFromWhere
            from firearrow.client.blocking import PushConsumer

            server, topic = sys.argv[1:]
            options = PushConsumerOptions(from_where=ConsumeFromWhere.FIRST_OFFSET)
            consumer = PushConsumer("signal-" + topic, name_server=server, options=options)

            @consumer.subscribe(topic)
            def handler(messages):
                print("began", flush=True)
                time.sleep(0.5)
                print("ended", flush=True)

            consumer.run()
            print("drained", consumer.state.value, flush=True)
            """
            ),
            name_server,
            topic,
        ],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    with process:
        assert process.stdout.readline() == "began\n"
        process.send_signal(number)
        assert process.stdout.read() == "ended\ndrained SHUTDOWN_ALREADY\n"
        assert process.stderr.read() == ""
    assert process.returncode == 0


def test_failures_that_no_caller_read_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    thread, unsent = LoopThread.current(), Unsent("{} lost")
    bridge = ThreadBridge(thread, Full(wait=False), unsent)
    called: list[object] = []

    def fail(how: str) -> UnreadFuture[SendResult]:
        def submit() -> asyncio.Future[SendResult]:
            raise ConfigError(how)

        future = bridge.submit(submit)
        wait([future], 10)
        assert isinstance(future, UnreadFuture)
        return future

    assert isinstance(fail("exception").exception(), ConfigError)
    with pytest.raises(ConfigError):
        fail("result").result()
    fail("callback").add_done_callback(called.append)
    kept = fail("unread")
    fail("unread")
    unsent.report()
    assert (len(called), capsys.readouterr().err) == (1, "firearrow: 2 lost: 2 times ConfigError: unread\n")
    assert kept.exception() is not None
    unsent.report()
    assert capsys.readouterr().err == ""
