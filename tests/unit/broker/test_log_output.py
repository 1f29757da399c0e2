"""QueuedOutput, LogFile and LogHandler: nothing waits, nothing is lost silently, repeated warnings are counted."""

import fcntl
import json
import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from firearrow.broker.base.log_output import (
    KEPT_CHARS_MAX,
    KEPT_LINES_MAX,
    QUEUE_CHARS_MAX,
    REPEATS_SHOWN,
    JsonFormatter,
    LogFile,
    LogHandler,
    QueuedOutput,
)
from tests.support.eventually import eventually


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


def test_repeated_lines_are_counted(pipe: tuple[int, int]) -> None:
    output = QueuedOutput(pipe[1])
    handler = LogHandler(output)
    log = logging.getLogger("tests.repeats")
    log.propagate = False
    log.setLevel(logging.DEBUG)
    log.handlers = [handler]
    log.warning("early %d", 1)
    handler.count_repeats()
    for number in range(500):
        log.warning("closed %d", number)
        log.info("joined %d", number)
        log.debug("as often %d", number) if number < 30 else None
    log.error("%s", "another")
    handler.report_repeats(at_once=True)
    text = ""
    while ": closed %d\n" not in text or ": joined %d\n" not in text:
        text += os.read(pipe[0], 1 << 16).decode()
    assert text.count(" closed ") == text.count(" joined ") == REPEATS_SHOWN + 1
    assert f" INFO tests.repeats: repeated {500 - REPEATS_SHOWN} times within 10 s: joined %d\n" in text
    assert f"repeated {500 - REPEATS_SHOWN} times within 10 s: closed %d\n" in text
    assert text.count("as often") == 30
    assert text.index("another") < text.index("repeated")


# ---- log files ----


def contents(path: Path) -> list[str]:
    """Of the rotated files, the oldest first."""
    files = sorted(path.parent.glob(f"{path.name}*"), key=lambda file: -int(file.suffix[1:] or 0))
    return [file.read_text() for file in files]


def test_a_file_ends_with_the_last_whole_line_that_fits(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("old\n")
    output = LogFile(str(path), 10, 9)
    output.write("1234\n12345\n")
    output.write("a line that is longer than a file\n12")
    output.write("3\n12345\n\n\n\n")
    output.drain(5)
    assert contents(path) == [
        "old\n1234\n",
        "12345\n",
        "a line that is longer than a file\n",
        "123\n12345\n",
        "\n\n\n",
    ]


def test_a_file_that_is_full_already_is_rotated_first(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("x" * 20 + "\n")
    output = LogFile(str(path), 10, 2)
    output.write("new\n")
    output.drain(5)
    assert contents(path) == ["x" * 20 + "\n", "new\n"]


def test_a_single_file_starts_again(tmp_path: Path) -> None:
    output = LogFile(str(tmp_path / "log"), 10, 1)
    for number in range(1000, 1007):
        output.write(f"{number}\n")
    output.drain(5)
    assert contents(tmp_path / "log") == ["1006\n"]


def test_a_file_that_cannot_be_rotated_is_written_on(tmp_path: Path) -> None:
    """Its folder was replaced by a file."""
    folder = tmp_path / "logs"
    folder.mkdir()
    output = LogFile(str(folder / "log"), 10, 3)
    output.write("1234567\n")
    output.drain(5)
    folder.rename(tmp_path / "moved")
    folder.write_text("")
    for number in range(3):
        output.write(f"line {number}\n")
        output.drain(5)
    first, notice, *lines = (tmp_path / "moved" / "log").read_text().splitlines()
    assert first == "1234567"
    assert notice.endswith(f" WARNING firearrow.log: {folder}/log cannot be rotated: Not a directory")
    assert lines == ["line 0", "line 1", "line 2"]
    folder.unlink()
    folder.mkdir()
    output.write("again\n")
    output.drain(5)
    assert contents(folder / "log") == ["again\n"]


def test_a_file_is_opened_again_although_nothing_is_written(tmp_path: Path) -> None:
    path = tmp_path / "log"
    output = LogFile(str(path), 1000, 3)
    output.write("one\n")
    output.drain(5)
    path.unlink()
    output.reopen()
    output.drain(5)
    assert path.read_text() == ""
    output.write("two\n")
    output.drain(5)
    assert path.read_text() == "two\n"


# ---- JSON ----


def formatted(text: str, *values: object, error: BaseException | None = None) -> str:
    exception = None if error is None else (type(error), error, error.__traceback__)
    record = logging.LogRecord("firearrow.x", logging.ERROR, "", 0, text, values, exception)
    return JsonFormatter().format(record)


def test_json_has_the_exception_in_the_same_line() -> None:
    try:
        raise OSError(28, "No space left on device")
    except OSError as error:
        line = formatted("%s failed\nat once", "x", error=error)
    assert "\n" not in line
    record = json.loads(line)
    assert record["message"] == "x failed\nat once"
    assert record["exception"].startswith("Traceback (most recent call last):\n")
    assert record["exception"].endswith("OSError: [Errno 28] No space left on device")


def test_json_of_a_file_name_that_is_not_utf_8(pipe: tuple[int, int]) -> None:
    output = QueuedOutput(pipe[1], JsonFormatter())
    output.write(formatted("%s ä", os.fsdecode(b"/\xff")) + "\n")
    assert json.loads(everything(pipe[0], 10))["message"] == "/\udcff ä"


def test_what_an_output_says_of_itself_is_json_too(pipe: tuple[int, int]) -> None:
    output = QueuedOutput(pipe[1], JsonFormatter())
    handler = LogHandler(output)
    handler.handleError(logging.LogRecord("firearrow.x", logging.ERROR, "", 0, "%d", ("x",), None))
    record = json.loads(everything(pipe[0], 10))
    assert record["message"] == "a log record could not be formatted: firearrow.x: '%d'"


def test_the_log_goes_on_after_an_error_of_its_thread(pipe: tuple[int, int]) -> None:
    """As without memory."""

    def fail() -> None:
        raise MemoryError

    output = QueuedOutput(pipe[1])
    output._wait = lambda: fail  # type: ignore[method-assign]
    print("lost", file=output)
    deadline = time.monotonic() + 10
    eventually(lambda: output._dropped, 10)
    del output._wait  # type: ignore[method-assign]
    print("goes on", file=output)
    while "goes on" not in (found := os.read(pipe[0], 4096).decode()):
        assert time.monotonic() < deadline, found


def test_the_last_lines_are_kept(tmp_path: Path) -> None:
    file = LogFile(str(tmp_path / "log"), 1 << 20, 1)
    handler, logger = LogHandler(file), logging.Logger("kept")
    logger.addHandler(handler)
    for number in range(KEPT_LINES_MAX + 1):
        logger.info("line %d", number)
    logger.info("x" * (KEPT_CHARS_MAX + 1))
    lines = handler.lines()
    assert len(lines) == KEPT_LINES_MAX
    assert (lines[0].number, lines[0].text) == (3, "line 2")
    assert lines[-1].text == "x" * KEPT_CHARS_MAX
