"""Expiry as workload: a whole broker whose old segments, queue, index and timer files are deleted under load.

The client makes segments old by setting the times of their files and marks that before; any other deletion is a fault.
"""

import os
import random
import time
from pathlib import Path

from firearrow._native.wire.codes import RequestCode
from firearrow.broker.timers import service
from tests.crash.marks import Marks
from tests.crash.recorded_broker import serve
from tests.support.client_socket import ClientSocket
from tests.support.requests import send_ext, topic_ext

SEGMENT_BYTES = 65536
SETTINGS = {
    "mappedFileSizeTimerLog": "600",
    "timerPrecisionMs": "100",
    "timerRollWindowSlot": "12",
    "messageDelayLevel": "1s 1m",
    "fileReservedTime": "1",
    "deleteFileBatchMax": "2",
    "deleteCommitLogFilesInterval": "5",
    "deleteConsumeQueueFilesInterval": "5",
    "cleanResourceInterval": "30",
    "cleanFileForciblyEnable": "false",
    "diskMaxUsedSpaceRatio": "95",
    "brokerName": "b",
}
STEPS, EXPIRY_EVERY, STEP_S = 260, 40, 0.004
OLD_S, GONE_S, CLEAN_S = 7200, 10, 0.1


def expired_files(root: Path, mark: Marks, draw: random.Random) -> None:
    """Either flush mode; the last segments are deleted before the stop."""
    service.CLEAN_S = CLEAN_S
    sync_flush = draw.random() < 0.6
    kept = "acknowledged" if sync_flush else "stored"
    serve(
        root, mark, SETTINGS, lambda peer: Expiry(root, peer, mark, draw, kept).run(), sync_flush=sync_flush
    )


class Expiry:
    """Bodies begin with a unique number. `kept`: the mark that says what a response guarantees of the record."""

    def __init__(
        self, root: Path, connection: ClientSocket, mark: Marks, draw: random.Random, kept: str
    ) -> None:
        self._log = root / "commitlog"
        self._connection = connection
        self._mark = mark
        self._draw = draw
        self._kept = kept
        self._at = 0

    def run(self) -> None:
        for topic in ("T", "Timed", "Delayed", "Gone"):
            made = self._connection.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(topic, 2))
            assert made.code == 0, made.remark
        for number in range(STEPS):
            self._send(number, may_go=number < STEPS // 2)
            if number == STEPS // 2:
                self._mark("forgetting", topic="Gone")
                gone = self._connection.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "Gone"})
                assert gone.code == 0, gone.remark
            if number % EXPIRY_EVERY == EXPIRY_EVERY - 1:
                below = self._expire()
            time.sleep(STEP_S)
        self._wait_for(below)

    def _send(self, number: int, *, may_go: bool) -> None:
        body = b"%08d" % number
        kind = self._draw.choice(("T", "T", "T", "Gone", "Timed", "Delayed"))
        if kind == "Timed":
            properties = {"TIMER_DELAY_MS": str(self._draw.choice((200, 900, 60_000)))}
        elif kind == "Delayed":
            properties = {"DELAY": self._draw.choice("12")}
        else:
            kind = kind if may_go else "T"
            properties = {"KEYS": f"k{number}", "TAGS": "a"}
            body += self._draw.randbytes(self._draw.randint(0, 4000))
        text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
        ext = send_ext(kind, self._draw.randrange(2), i=text)
        answer = self._connection.ask(RequestCode.SEND_MESSAGE_V2, ext, body)
        assert answer.code == 0, answer.remark
        self._at = int(answer.ext["msgId"][-16:], 16)
        self._mark(self._kept, at=self._at)
        if kind in ("Timed", "Delayed"):
            entry = int(answer.ext["queueOffset"])
            self._mark("later", topic=kind, body=body.decode(), at=self._at, entry=entry)

    def _expire(self) -> int:
        """Some of the oldest segments, at most up to the active one; returns where the log may begin then."""
        active = self._at // SEGMENT_BYTES * SEGMENT_BYTES
        old = [path for path in sorted(self._log.iterdir()) if int(path.name) < active]
        old = old[: self._draw.randint(0, len(old))]
        below = int(old[-1].name) + SEGMENT_BYTES if old else 0
        if old:
            self._mark("expiring", below=below)
        for path in old:
            at = time.time() - OLD_S
            os.utime(path, (at, at))
        asked = self._connection.ask(RequestCode.DELETE_EXPIRED_COMMITLOG)
        assert asked.code == 0, asked.remark
        return below

    def _wait_for(self, below: int) -> None:
        deadline = time.monotonic() + GONE_S
        while min(int(path.name) for path in self._log.iterdir()) < below:
            assert time.monotonic() < deadline, f"the log does not begin at {below}"
            time.sleep(0.01)
