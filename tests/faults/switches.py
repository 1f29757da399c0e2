"""Everything that threads read, changed all the time, by a broker whose threads take turns after a few bytecodes.

    python -m tests.faults.switches [--seconds 600]

Topics and queues come and go under sends, commits, ordered pops, locks, timers, delays and administration, while log,
queues and tables are flushed, saved and deleted as often as the options allow. Right: no thread ends or fails, the log
is synced, nothing that was acknowledged is lost. FIREARROW_TEST_SWITCH_S does the same for all other tests.
"""

import argparse
import itertools
import json
import sys
import tempfile
import threading
import time
from pathlib import Path

from firearrow._native.wire.codes import RequestCode
from tests.metrics.scrapes import WatchedBroker
from tests.support.client_socket import ClientSocket
from tests.support.eventually import eventually
from tests.support.requests import pull, send, send_ext, topic_ext
from tests.support.startup import QUICK_SWITCHES, startup_environment

SETTINGS = (
    "flushIntervalCommitLog=10",
    "flushIntervalConsumeQueue=10",
    "flushConsumerOffsetInterval=100",
    "cleanResourceInterval=50",
    "mappedFileSizeCommitLog=1048576",
    "mappedFileSizeConsumeQueue=2000",
    "maxIndexNum=2000",
    "maxHashSlotNum=500",
    "timerPrecisionMs=100",
    "fileReservedTime=0",
    "deleteWhen=" + ";".join(f"{hour:02}" for hour in range(24)),
    "deleteCommitLogFilesInterval=1",
    "deleteConsumeQueueFilesInterval=1",
)
TOPICS = 40
LAG_S = 30.0
"""The log is synced within this time on a busy machine."""


class Load:
    """What one client does, again and again; its first error is raised by `join`."""

    def __init__(self, broker: WatchedBroker, number: int) -> None:
        self._broker = broker
        self._number = number
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self.rounds = 0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def join(self) -> None:
        self._stop.set()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            with self._broker.connect() as connection:
                for step in itertools.count():
                    if self._stop.is_set():
                        return
                    self._round(connection, f"T{self._number}-{step % TOPICS}", step)
                    self.rounds += 1
        except BaseException as error:
            self._error = error

    def _round(self, connection: ClientSocket, topic: str, step: int) -> None:
        group = f"G{self._number}-{step % TOPICS}"
        ask = connection.ask
        if step >= TOPICS:
            assert ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic}).code == 0
        assert ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(topic)).code == 0
        for queue_id in range(4):
            answer = send(connection, topic, b"x" * 500, queue_id, tag=f"tag{step}")
            assert answer.code == 0, answer.remark
        delayed = send_ext(topic, i=f"KEYS\x01k{step}\x02DELAY\x01{1}\x02")
        timed = send_ext(topic, i=f"TIMER_DELAY_MS\x01{300}\x02")
        for ext in (delayed, timed):
            answer = ask(RequestCode.SEND_MESSAGE_V2, ext, b"later")
            assert answer.code == 0, answer.remark
        pull(connection, topic, consumerGroup=group)
        for queue_id in range(4):
            ext = {"consumerGroup": group, "topic": topic, "queueId": str(queue_id), "commitOffset": "1"}
            assert ask(RequestCode.UPDATE_CONSUMER_OFFSET, ext).code == 0
        queues = [{"topic": topic, "brokerName": "b", "queueId": queue_id} for queue_id in range(4)]
        body = {"consumerGroup": group, "clientId": f"c{self._number}", "mqSet": queues}
        code = RequestCode.LOCK_BATCH_MQ if step % 2 else RequestCode.UNLOCK_BATCH_MQ
        assert ask(code, {}, json.dumps(body).encode()).code == 0
        if step % 5 == 0:
            assert ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": group}).code == 0


def run(store: Path, flush: str, seconds: float, clients: int = 2) -> int:
    """How many rounds were done. AssertionError."""
    settings = (word for each in (*SETTINGS, f"flushDiskType={flush}") for word in ("--set", each))
    with WatchedBroker(store, *settings, environment=startup_environment(QUICK_SWITCHES)) as broker:
        loads = [Load(broker, number) for number in range(clients)]
        until = time.monotonic() + seconds
        try:
            while time.monotonic() < until:
                _check(broker)
                time.sleep(min(1.0, seconds / 5))
        finally:
            for load in loads:
                load.join()
        _check(broker)
        assert broker.stop(60) == 0
        log = broker.log.read_text()
        assert not any(level in log for level in (" ERROR ", " CRITICAL ", "Traceback")), log[-4000:]
    return sum(load.rounds for load in loads)


def _check(broker: WatchedBroker) -> None:
    status = json.loads(broker.get("/status")[2])
    assert status["unready"] is None, status["unready"]
    assert all(each["alive"] and not each["fault"] for each in status["threads"]), status["threads"]
    assert not any(each["fault"] for each in status["saves"]), status["saves"]
    assert broker.scrape()
    goal = status["store"]["maxOffset"]
    eventually(
        lambda: json.loads(broker.get("/status")[2])["store"]["flushedOffset"] >= goal, LAG_S, "synced"
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--clients", type=int, default=4)
    arguments = parser.parse_args()
    for flush in ("SYNC_FLUSH", "ASYNC_FLUSH"):
        with tempfile.TemporaryDirectory() as folder:
            rounds = run(Path(folder) / "store", flush, arguments.seconds / 2, arguments.clients)
        print(f"{flush}: {rounds} rounds, no thread failed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
