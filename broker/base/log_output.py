"""Standard output and error of a server and its log file, written by threads, and the handler of its log.

A pipe whose reader has stopped, a full disk or a closed descriptor never blocks or ends the process: what cannot
be written is dropped and counted. Any thread writes; one thread for each output passes the text on, in order.
At exit, the threads get EXIT_S for what is left.
"""

import atexit
import contextlib
import io
import itertools
import logging
import os
import select
import stat
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from typing import NamedTuple

QUEUE_CHARS_MAX = 1 << 20
"""Most characters of one output that wait; further ones are dropped."""
EXIT_S = 1.0
RETRY_S = 0.1
"""After a write that failed for another reason than the disk or the pipe."""
REPEATS_SHOWN, REPEATS_S = 20, 10.0
"""Records of one kind that are logged within this time; further ones are counted."""
KINDS_MAX = 1000
KEPT_LINES_MAX, KEPT_CHARS_MAX = 2000, 2000
"""Lines of the log that stay in memory, and characters of each."""
FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
TEXT = logging.Formatter(FORMAT)


class JsonFormatter(logging.Formatter):
    """One JSON object a line: `ts` (ISO 8601, local time with its offset), `level`, `logger`, `message`, and
    `exception` with its traceback if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        import json  # noqa: PLC0415 (only for this format)

        when = datetime.fromtimestamp(record.created, UTC).astimezone()
        fields = {
            "ts": when.isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False)


class QueuedOutput(io.TextIOBase):
    """A text stream whose `write` never waits."""

    encoding, errors = "utf-8", "backslashreplace"

    def __init__(self, descriptor: int, formatter: logging.Formatter = TEXT) -> None:
        self.formatter = formatter
        self._descriptor = descriptor
        self._texts: deque[str] = deque()
        self._chars = 0
        self._dropped = 0
        self._writing = False
        self._changed = threading.Condition(threading.Lock())
        self._tick: Callable[[], None] | None = None
        threading.Thread(target=self._run, name=f"output {descriptor}", daemon=True).start()

    def write(self, text: str) -> int:
        if not isinstance(text, str):  # click tries with bytes what kind of stream this is
            raise TypeError(f"text is expected, not {type(text).__name__}")
        with self._changed:
            if self._chars + len(text) > QUEUE_CHARS_MAX:
                self._dropped += 1
            else:
                if self._dropped:
                    self._append(self._notice())
                self._append(text)
                self._changed.notify_all()
        return len(text)

    def call_later(self, tick: Callable[[], None]) -> None:
        """Call `tick` in the thread of this output after about REPEATS_S, once."""
        with self._changed:
            self._tick = tick
            self._changed.notify_all()

    def drain(self, timeout_s: float) -> None:
        """Wait until all is written, at most so long."""
        with self._changed:
            if self._dropped:
                self._append(self._notice())
                self._changed.notify_all()
            self._changed.wait_for(lambda: not self._texts and not self._writing, timeout_s)

    def fileno(self) -> int:
        return self._descriptor

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def _append(self, text: str) -> None:
        self._texts.append(text)
        self._chars += len(text)

    def _notice(self) -> str:
        count, self._dropped = self._dropped, 0
        return self.warning("%d lines were dropped: they could not be written", count)

    def warning(self, text: str, *values: object) -> str:
        """A line about this output itself."""
        record = logging.LogRecord("firearrow.log", logging.WARNING, "", 0, text, values, None)
        return self.formatter.format(record) + "\n"

    # ---- the thread ----

    def _run(self) -> None:
        while True:
            try:
                self._write_next()
            except Exception:  # without memory: the log must go on, nothing else would show that it ended
                with self._changed:
                    self._dropped += 1
                time.sleep(RETRY_S)

    def _write_next(self) -> None:
        with self._changed:
            self._writing = False
            self._changed.notify_all()
            tick = self._wait()
            data = "".join(self._texts).encode(self.encoding, self.errors)
            count = len(self._texts)
            self._texts.clear()
            self._chars, self._writing = 0, True
        if tick is not None:
            tick()
        if count and not self._write_all(data):
            with self._changed:
                self._dropped += count

    def _wait(self) -> Callable[[], None] | None:
        """Wait for a text, or until a `tick` is due; return it then."""
        due = None
        while not self._texts:
            if self._tick is not None and due is None:
                due = time.monotonic() + REPEATS_S
            if due is not None and time.monotonic() >= due:
                tick, self._tick = self._tick, None
                return tick
            self._changed.wait(None if due is None else max(due - time.monotonic(), 0.01))
        return None

    def _write_all(self, data: bytes) -> bool:
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self._descriptor, view) :]
            except BlockingIOError:  # shared with a process that made it so
                poll = select.poll()
                poll.register(self._descriptor, select.POLLOUT)
                poll.poll()
            except OSError:
                return False
        return True


class LogFile(QueuedOutput):
    """A log file that is rotated: PATH is the current one, PATH.1 the one before, up to `files` in all.

    A file is at most `file_bytes` long, unless one line is longer. What cannot be rotated or reopened is written on
    to the file that is open, and a line there states why. OSError: it cannot be opened.
    """

    def __init__(self, path: str, file_bytes: int, files: int, formatter: logging.Formatter = TEXT) -> None:
        self._path, self._file_bytes, self._files = path, file_bytes, files
        self._fault = ""
        self._reopen = False
        self._descriptor = _open_log(path)
        self._regular, self._size = _measured(self._descriptor)
        super().__init__(self._descriptor, formatter)

    def reopen(self) -> None:
        """Open PATH again, because the file there was renamed or deleted."""
        self._reopen = True
        self.write("")

    def _write_all(self, data: bytes) -> bool:
        if self._reopen:
            self._reopen = False
            self._try(self._open_again, "reopened")
        while data:
            room = self._file_bytes - self._size if self._regular else len(data)
            end = len(data) if len(data) <= room else data.rfind(b"\n", 0, max(room, 0)) + 1
            if not end:
                if self._size and self._try(self._rotate, "rotated"):
                    continue
                end = len(data) if self._fault else data.find(b"\n") + 1 or len(data)
            if not super()._write_all(data[:end]):
                self._regular, self._size = _measured(self._descriptor)
                return False
            self._size += end
            data = data[end:]
        return True

    def _try(self, step: Callable[[], None], done: str) -> bool:
        """Whether this step succeeded; the log states once why it did not."""
        try:
            step()
        except OSError as error:
            fault = f"{self._path} cannot be {done}: {error.strerror}"
            if fault != self._fault:
                self._fault = fault
                super()._write_all(self.warning("%s", fault).encode(self.encoding, self.errors))
            return False
        self._fault = ""
        return True

    def _rotate(self) -> None:
        names = [self._path, *(f"{self._path}.{number}" for number in range(1, self._files))]
        if os.path.exists(self._path):  # else only the opening failed the last time
            with contextlib.suppress(FileNotFoundError):
                os.unlink(names[-1])
            for name, older in reversed(list(itertools.pairwise(names))):
                with contextlib.suppress(FileNotFoundError):
                    os.rename(name, older)
        self._open_again()

    def _open_again(self) -> None:
        fresh = _open_log(self._path)
        os.close(self._descriptor)
        self._descriptor = fresh
        self._regular, self._size = _measured(fresh)


def _measured(descriptor: int) -> tuple[bool, int]:
    """Whether it is a regular file, and its length."""
    status = os.fstat(descriptor)
    return stat.S_ISREG(status.st_mode), status.st_size


def _open_log(path: str) -> int:
    """Of a FIFO without a reader too, this does not wait. OSError."""
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o644)


class _Repeats:
    """Records of one kind, at this level, since `since`."""

    def __init__(self, since: float, level: int) -> None:
        self.since = since
        self.level = level
        self.count = 0


class LogLine(NamedTuple):
    """`number`: from 1 on in each process."""

    number: int
    at_ms: int
    level: int
    logger: str
    text: str


class LogHandler(logging.Handler):
    """Writes records to `output`, and keeps the last ones. After `count_repeats`, of records of one kind (with the same
    text before its values are filled in), except those for debugging, REPEATS_SHOWN are written within REPEATS_S; the
    others are counted."""

    def __init__(self, output: QueuedOutput) -> None:
        super().__init__()
        self.setFormatter(output.formatter)
        self._output = output
        self._kinds: dict[tuple[str, str], _Repeats] | None = None
        self._kept: deque[LogLine] = deque(maxlen=KEPT_LINES_MAX)
        self._count = 0

    def count_repeats(self) -> None:
        self._kinds = {}

    def emit(self, record: logging.LogRecord) -> None:
        if self._kinds is None or record.levelno < logging.INFO or self._is_shown(record, self._kinds):
            self._write(record)

    def lines(self) -> list[LogLine]:
        """Those that are kept, oldest first. Any thread."""
        self.acquire()
        try:
            return list(self._kept)
        finally:
            self.release()

    def _write(self, record: logging.LogRecord) -> None:
        """With the lock of this handler."""
        self._output.write(self.format(record) + "\n")
        self._count += 1
        text = record.getMessage()
        if record.exc_info:
            text += "\n" + TEXT.formatException(record.exc_info)
        at_ms = int(record.created * 1000)
        self._kept.append(LogLine(self._count, at_ms, record.levelno, record.name, text[:KEPT_CHARS_MAX]))

    def handleError(self, record: logging.LogRecord) -> None:
        """A record that cannot be formatted: state it, without writing to the descriptor here."""
        text = "a log record could not be formatted: %s: %r"
        self._output.write(self._output.warning(text, record.name, record.msg))

    def report_repeats(self, *, at_once: bool = False) -> None:
        """Log how many records were not written, where their time is over or `at_once`."""
        self._report(float("inf") if at_once else time.monotonic())

    def _is_shown(self, record: logging.LogRecord, kinds: dict[tuple[str, str], _Repeats]) -> bool:
        message = str(record.msg)
        kind = record.name, record.getMessage() if message == "%s" else message
        now = time.monotonic()
        repeats = kinds.get(kind)
        if repeats is not None and now - repeats.since >= REPEATS_S:
            self._report(now)
            repeats = kinds.get(kind)
        if repeats is None:
            if len(kinds) >= KINDS_MAX:
                self._report(float("inf"))
            repeats = kinds[kind] = _Repeats(now, record.levelno)
        repeats.count += 1
        if repeats.count == REPEATS_SHOWN + 1:
            self._output.call_later(self.report_repeats)
        return repeats.count <= REPEATS_SHOWN

    def _report(self, now: float) -> None:
        self.acquire()
        try:
            kinds = self._kinds or {}
            for kind in [kind for kind, repeats in kinds.items() if now - repeats.since >= REPEATS_S]:
                repeats = kinds.pop(kind)
                more = repeats.count - REPEATS_SHOWN
                if more > 0:
                    text = "repeated %d times within %d s: %s"
                    record = logging.LogRecord(
                        kind[0], repeats.level, "", 0, text, (more, REPEATS_S, kind[1]), None
                    )
                    self._write(record)
            if any(repeats.count > REPEATS_SHOWN for repeats in kinds.values()):
                self._output.call_later(self.report_repeats)
        finally:
            self.release()


def open_standard_descriptors() -> None:
    """Open /dev/null in place of each standard descriptor that is closed. Otherwise the next file or socket
    would get its number, and output would be written into it."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != descriptor:
                os.dup2(opened, descriptor)
                os.close(opened)


def queue_outputs(level: int, formatter: logging.Formatter = TEXT, log_file: LogFile | None = None) -> None:
    """Put queues in front of stdout and stderr, which are open, and send the log of at least this level to the file,
    or to stderr if there is none."""
    outputs: list[QueuedOutput] = [QueuedOutput(1), QueuedOutput(2, formatter)]
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.flush()
    sys.stdout, sys.stderr = outputs[0], outputs[1]
    if log_file is not None:
        outputs.append(log_file)
    handler = LogHandler(outputs[-1])
    logging.basicConfig(level=level, handlers=[handler])

    def drain() -> None:
        handler.report_repeats(at_once=True)
        until = time.monotonic() + EXIT_S
        for output in outputs:
            output.drain(max(until - time.monotonic(), 0))

    atexit.register(drain)


def kept_lines() -> list[LogLine]:
    """The last lines of this process's log, oldest first; none before `queue_outputs`. Any thread."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, LogHandler):
            return handler.lines()
    return []


def announce_ready(line: str) -> None:
    """Print that the server is ready; repeated lines of the log are counted from now on."""
    announce(line)
    for handler in logging.getLogger().handlers:
        if isinstance(handler, LogHandler):
            handler.count_repeats()


def announce(line: str) -> None:
    """Print a line on stdout, after what the log has so far on stderr."""
    if isinstance(sys.stderr, QueuedOutput):
        sys.stderr.drain(EXIT_S)
    print(line, flush=True)
