"""Files and directories that survive a power cut: a synced file is lost if the directory that names it was not
synced. Any thread.
"""

import contextlib
import os


def fsync_dir(path: str) -> None:
    """fsync a directory: the names in it are durable on return. OSError. Windows has no such thing."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    number = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def make_dirs(path: str) -> None:
    """Make a directory and its missing parents, all durable on return. OSError."""
    above = os.path.dirname(path)
    if above != path and not os.path.isdir(above):
        make_dirs(above)
    try:
        os.mkdir(path)
    except FileExistsError:
        return
    fsync_dir(above)


def replace_durably(path: str, data: bytes, *, mode: int | None = None) -> None:
    """Write the file; a crash leaves a complete one, the old or the new. `mode`: its permissions, whatever the umask;
    None: as any new file. OSError: the old one is unchanged."""
    fresh = f"{path}.tmp"
    with contextlib.suppress(FileNotFoundError):  # an old one may have other permissions
        os.unlink(fresh)
    try:
        number = os.open(
            fresh,
            os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0),
            0o666 if mode is None else mode,
        )
        with open(number, "wb") as file:
            if mode is not None and hasattr(os, "fchmod"):
                os.fchmod(number, mode)
            file.write(data)
            file.flush()
            os.fsync(number)
        os.replace(fresh, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(fresh)
        raise
    fsync_dir(os.path.dirname(path) or ".")
