"""AuditLog: one JSON line for each change of users and rules, and for each refusal. Loop thread.

Passwords are never in it. A line that cannot be written is counted, and the next one states how many are missing. If
the file was renamed or deleted, as tools do that rotate logs, a new one is begun within a second.
"""

import contextlib
import errno
import json
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Self

from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.auth.signatures import ACCESS_KEY
from firearrow.broker.base.errors import Refusal, StartError
from firearrow.broker.base.peer import Peer, ip_text

log = logging.getLogger("firearrow.auth")

TEXT_CHARS_MAX = 512
"""Of a value: names in refused requests come from anyone."""
LINES_PER_S_MAX = 1000
"""Refusals written in a second; further ones are counted: a flood of requests must not fill the disk."""


class AuditLog:
    """`now_ms()`: wall clock."""

    def __init__(self, path: Path, now_ms: Callable[[], int]) -> None:
        self._descriptor = _open(path)
        self._path = path
        self._now_ms = now_ms
        self._missing = 0
        self._second, self._lines = 0, 0
        self._looked_at_s = 0

    @classmethod
    def open(cls, path: str, now_ms: Callable[[], int]) -> Self:
        """StartError: the file cannot be opened."""
        try:
            absolute = Path(path).absolute()
            absolute.parent.mkdir(parents=True, exist_ok=True)
            return cls(absolute, now_ms)
        except OSError as error:
            raise StartError(
                f"the audit log {path} cannot be written ({error.strerror}): name another file in authAuditLog"
            ) from None

    def change(self, what: str, user: str | None, address: str, **facts: object) -> None:
        """`user` did something to users or rules."""
        self._write({"event": what, "user": user, "address": address} | facts)

    def refusal(self, code: int, user: str | None, address: str, reason: str) -> None:
        second = self._now_ms() // 1000
        if second != self._second:
            self._second, self._lines = second, 0
        self._lines += 1
        if self._lines > LINES_PER_S_MAX:
            self._missing += 1
            return
        self._write({"event": "refused", "code": code, "user": user, "address": address, "reason": reason})

    def close(self) -> None:
        os.close(self._descriptor)

    def _reopen_rotated(self) -> None:
        """Begin a new file if the path leads to ours no more. Once a second."""
        second = self._now_ms() // 1000
        if second == self._looked_at_s:
            return
        self._looked_at_s = second
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(self._path.stat(), os.fstat(self._descriptor)):
                return
        fresh = _open(self._path)
        os.close(self._descriptor)
        self._descriptor = fresh

    def _write(self, facts: dict[str, object]) -> None:
        short = {
            name: value[:TEXT_CHARS_MAX] if isinstance(value, str) else value for name, value in facts.items()
        }
        line: dict[str, object] = {"ms": self._now_ms(), **short}
        if self._missing:
            line["missing"] = self._missing
        try:
            self._reopen_rotated()
            _append(self._descriptor, json.dumps(line).encode() + b"\n")
            self._missing = 0
        except OSError as error:
            self._missing += 1
            if self._missing == 1:
                log.error("the audit log %s cannot be written: %s", self._path, error.strerror)


def _open(path: Path) -> int:
    """The descriptor of the file. OSError."""
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK  # a full pipe is an error
    return os.open(path, flags, 0o600)


def _append(descriptor: int, line: bytes) -> None:
    """OSError: the line is not there, or only its beginning."""
    size = os.fstat(descriptor).st_size  # 0 of a pipe
    if size and os.pread(descriptor, 1, size - 1) != b"\n":  # the disk was full in the middle of a line
        line = b"\n" + line
    if os.write(descriptor, line) < len(line):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def audit_change(
    audit: AuditLog | None, request: RemotingCommand, peer: Peer, what: str, **facts: object
) -> None:
    """A line about a change of users or rules that the request made, if there is an audit log. Its user is the one that
    has signed the request; None: it came from a white address, or its code needs no login."""
    if audit is not None:
        audit.change(what, request.user, ip_of(peer), **facts)


def audit_refusal(audit: AuditLog | None, request: RemotingCommand, peer: Peer, refusal: Refusal) -> None:
    """A line about the refusal of the request, if there is an audit log."""
    if audit is not None:
        audit.refusal(request.code, request.ext.get(ACCESS_KEY), ip_of(peer), refusal.remark)


def ip_of(peer: Peer) -> str:
    """The peer's IP address, IPv4 in IPv6 as IPv4."""
    return ip_text(peer.remote[0])
