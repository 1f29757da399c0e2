"""LocalMember: which of this machine's members of a broadcasting group a consumer is, so that each has its own offsets.

The file of the offsets is named after the client id, which has to survive restarts: of one machine all consumers of a
group would have one (Java's do), and each would go on where another was. So a consumer locks the folder of its file;
the next one takes `-2` as a part of its instance name, and so on. After a restart each takes the first that is free.
"""

import contextlib
import logging
import os
import weakref
from dataclasses import replace
from pathlib import Path
from typing import IO

from firearrow.client.base.options import ClientOptions
from firearrow.client.remoting.client_id import DEFAULT_INSTANCE, build_client_id

try:
    import fcntl
except ImportError:  # Windows: all share the first one's file
    fcntl = None  # type: ignore[assignment]

log = logging.getLogger("firearrow.client")

MEMBERS_MAX = 1024
LOCK_NAME = "lock"
_members: "weakref.WeakSet[LocalMember]" = weakref.WeakSet()


class LocalMember:
    """`options` have the instance name of the first member that no other consumer of this machine is."""

    def __init__(
        self, directory: str | os.PathLike[str], options: ClientOptions, group: str, *, stream: bool = False
    ) -> None:
        self.options = options
        self._lock: IO[bytes] | None = None
        for number in range(1, MEMBERS_MAX + 1):
            if number > 1:
                name = f"{options.instance_name or DEFAULT_INSTANCE}-{number}"
                self.options = replace(options, instance_name=name)
            client_id = build_client_id(self.options, broadcasting=True, stream=stream)
            if self._is_free(Path(directory) / client_id / group):
                break
        if number > 1:
            log.warning(
                "another consumer of group %s on this machine has its offsets in %s: this one is %s. Give each an "
                "instance_name, so that each continues at its offsets, in whatever order they start",
                group,
                directory,
                client_id,
            )
        _members.add(self)

    def _is_free(self, folder: Path) -> bool:
        """Lock it. Where nothing can be locked, all are free."""
        if fcntl is None:
            return True
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock = (folder / LOCK_NAME).open("ab")
        except OSError as error:
            log.info("the offsets in %s cannot be locked: %s", folder, error)
            return True
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            return False
        except OSError as error:  # a file system without locks
            log.debug("the offsets in %s cannot be locked: %s", folder, error)
            lock.close()
            return True
        self._lock = lock
        return True

    def release(self) -> None:
        if self._lock is not None:
            with contextlib.suppress(OSError):
                fcntl.flock(self._lock, fcntl.LOCK_UN)
            self.forget()

    def forget(self) -> None:
        """Close the file without unlocking it: in a forked process, the lock is the parent's."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None


def _forget_all() -> None:
    for member in list(_members):
        member.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)
