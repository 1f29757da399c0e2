"""IdentityFiles: the number that the controllers gave this broker: `brokerIdentity`, and `brokerIdentity-temp` while it
applies for one. Apache's files (BrokerMetadata, TempBrokerMetadata): cluster, name and number with `#` between, in the
second one also the check code. Each change is on the disk before the call returns. Loop thread.
"""

import contextlib
import os
from pathlib import Path
from typing import NamedTuple

from firearrow._native.base.durable_files import fsync_dir
from firearrow.broker.base.errors import StartError

NAME, TEMP_NAME = "brokerIdentity", "brokerIdentity-temp"
FILE_BYTES_MAX = 1 << 16
NUMBER_MAX = (1 << 62) - 1


class Applied(NamedTuple):
    """`check_code`: by which the controllers know the broker again, if it has to apply twice."""

    number: int
    check_code: str


class IdentityFiles:
    """StartError: a file is damaged, cannot be read, or is of another cluster or name."""

    def __init__(self, folder: str | os.PathLike[str], cluster: str, broker: str) -> None:
        self._path, self._temp = Path(folder) / NAME, Path(folder) / TEMP_NAME
        self._cluster, self._broker = cluster, broker
        known = self._read(self._path, 3)
        self.number: int | None = None if known is None else _number(self._path, known[2])
        applied = None if known is not None else self._read(self._temp, 4)
        self.applied = None if applied is None else Applied(_number(self._temp, applied[2]), applied[3])

    def apply(self, applied: Applied) -> None:
        """OSError."""
        self._write(self._temp, applied.number, f"#{applied.check_code}")
        self.applied = applied

    def forget_application(self) -> None:
        """The number was given to another broker. OSError."""
        self._delete(self._temp)
        self.applied = None

    def accept(self, number: int) -> None:
        """The controllers gave us this number. OSError."""
        self._write(self._path, number)
        self._delete(self._temp)
        self.number, self.applied = number, None

    def _read(self, path: Path, count: int) -> list[str] | None:
        try:
            with path.open("rb") as file:
                text = file.read(FILE_BYTES_MAX).decode()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StartError(
                f"{path} cannot be read ({error.strerror}): give the broker access to it"
            ) from error
        except ValueError:
            raise _damaged(path) from None
        words = text.strip("\n").split("#")
        if words == [""]:
            return None  # Apache's broker was killed as it wrote it
        if len(words) != count:
            raise _damaged(path)
        if words[:2] != [self._cluster, self._broker]:
            raise StartError(
                f"{path} is of the broker {words[1][:64]!r} in the cluster {words[0][:64]!r}: set brokerName and "
                "brokerClusterName to these, or start with an empty store"
            )
        return words

    def _write(self, path: Path, number: int, rest: str = "") -> None:
        fresh = Path(f"{path}.tmp")
        with fresh.open("wb") as file:
            file.write(f"{self._cluster}#{self._broker}#{number}{rest}".encode())
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
        fsync_dir(str(path.parent))

    def _delete(self, path: Path) -> None:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
            fsync_dir(str(path.parent))


def _number(path: Path, text: str) -> int:
    if not (text.isascii() and text.isdigit()) or not 0 < int(text[:20]) <= NUMBER_MAX:
        raise _damaged(path)
    return int(text)


def _damaged(path: Path) -> StartError:
    return StartError(
        f"{path} is damaged: delete it, so that the controllers give this broker a new number (and have them forget "
        "the old one with `mqadmin cleanBrokerMetadata`)"
    )
