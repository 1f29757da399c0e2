"""Make and fsync directories, and delete the incomplete files that a power cut left in a store.

A synced file is lost if the directory that names it was not synced. Reads no file content. Any thread.
"""

import os


def fsync_dir(path: str) -> None:
    """fsync a directory: the names in it are durable on return. OSError."""
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


def delete_incomplete_files(queues: str, index: str) -> None:
    """Called before a killed store is opened. Queue files from the first empty one or the first gap on were
    never synced, nor was an empty index file; all of them are rebuilt from the log. OSError."""
    for topic in _folders(queues):
        for queue in _folders(topic):
            _delete_incomplete_files(queue)
    for name in os.listdir(index) if os.path.isdir(index) else ():
        path = os.path.join(index, name)
        if os.path.isfile(path) and os.path.getsize(path) == 0:
            os.unlink(path)


def _delete_incomplete_files(queue: str) -> None:
    expected, broken = -1, False
    for name in sorted(os.listdir(queue)):
        path = os.path.join(queue, name)
        if not name.isdecimal() or not os.path.isfile(path):
            continue
        size = os.path.getsize(path)
        broken = broken or size == 0 or expected not in (-1, int(name))
        if broken:
            os.unlink(path)
        expected = int(name) + size


def _folders(path: str) -> list[str]:
    if not os.path.isdir(path):
        return []
    with os.scandir(path) as found:
        return sorted(entry.path for entry in found if entry.is_dir())
