"""QueuedOutput and LogHandler: nothing waits, nothing is lost silently, and repeated warnings are counted."""

import fcntl
import logging
import os
import time
from collections.abc import Iterator

import pytest

from firearrow.broker.base.log_output import QUEUE_CHARS_MAX, REPEATS_SHOWN, LogHandler, QueuedOutput


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    fcntl.fcntl(ends[1], fcntl.F_SETPIPE_SZ, 4096)
    yield ends
    for end in ends:
        os.close(end)


def everything(end: int, size: int) -> str:
    found = b""
    while len(found) < size:
        found += os.read(end, 1 << 16)
    return found.decode()


def test_all_lines_arrive_in_order(pipe: tuple[int, int]) -> None:
    output = QueuedOutput(pipe[1])
    lines = "".join(f"line {number} ä\n" for number in range(2000))
    for line in lines.splitlines(keepends=True):
        print(line, end="", file=output)
    assert everything(pipe[0], len(lines.encode())) == lines


def test_a_pipe_that_nobody_reads_blocks_nobody_and_the_dropped_lines_are_counted(
    pipe: tuple[int, int],
) -> None:
    output = QueuedOutput(pipe[1])
    line = "x" * 99 + "\n"
    count = 2 * QUEUE_CHARS_MAX // len(line)
    begun = time.monotonic()
    for _ in range(count):
        output.write(line)
    output.drain(0.2)
    assert time.monotonic() - begun < 2
    text = ""
    while "be written\n" not in text:
        text += os.read(pipe[0], 1 << 16).decode()
    kept = text.count(line)
    assert f"WARNING firearrow.log: {count - kept} lines were dropped" in text
    output.write("again\n")
    assert everything(pipe[0], 6) == "again\n"


def test_an_output_that_fails_counts_what_it_lost(pipe: tuple[int, int]) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    output = QueuedOutput(full)
    output.write("lost\n")
    output.drain(2)
    os.dup2(pipe[1], full)
    output.write("written\n")
    text = ""
    while not text.endswith("written\n"):
        text += os.read(pipe[0], 4096).decode()
    assert "WARNING firearrow.log: 1 lines were dropped" in text


def test_a_descriptor_in_non_blocking_mode_loses_nothing(pipe: tuple[int, int]) -> None:
    os.set_blocking(pipe[1], False)
    output = QueuedOutput(pipe[1])
    output.write("y" * 100_000)
    assert everything(pipe[0], 100_000) == "y" * 100_000


def test_repeated_warnings_are_counted(pipe: tuple[int, int]) -> None:
    output = QueuedOutput(pipe[1])
    handler = LogHandler(output)
    log = logging.getLogger("tests.repeats")
    log.propagate = False
    log.setLevel(logging.INFO)
    log.handlers = [handler]
    log.warning("early %d", 1)
    handler.count_repeats()
    for number in range(500):
        log.warning("closed %d", number)
        log.info("as often %d", number) if number < 30 else None
    log.error("%s", "another")
    handler.report_repeats(at_once=True)
    text = ""
    while ": closed %d\n" not in text:
        text += os.read(pipe[0], 1 << 16).decode()
    assert text.count(" closed ") == REPEATS_SHOWN + 1
    assert f"repeated {500 - REPEATS_SHOWN} times within 10 s: closed %d\n" in text
    assert text.count("as often") == 30
    assert text.index("another") < text.index("repeated")
