"""A whole broker in the recorded process, and a client in one of its threads that marks each response.

The content of the log is read from the log (`derived`); the marks say what was acknowledged, and when.
"""

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

from bench.ports import free_port
from firearrow.client.cli.main import run
from tests.crash.marks import Marks
from tests.support.client_socket import ClientSocket

SMALL = {
    "mappedFileSizeCommitLog": "65536",
    "mappedFileSizeConsumeQueue": "400",
    "maxHashSlotNum": "40",
    "maxIndexNum": "64",
    "maxMessageSize": "4096",
    "flushIntervalCommitLog": "40",
    "flushIntervalConsumeQueue": "60",
    "flushConsumerOffsetInterval": "150",
}
STORE_KEYS = {
    "mappedFileSizeCommitLog": "segment_bytes",
    "mappedFileSizeConsumeQueue": "queue_file_bytes",
    "maxHashSlotNum": "index_slots",
    "maxIndexNum": "index_entries",
    "maxMessageSize": "max_message_bytes",
}
"""The store's options are built from these."""
START_S = 20
ENDLESS = 1 << 62

Address = tuple[str, int]


def serve(
    root: Path,
    mark: Marks,
    settings: dict[str, str],
    use: Callable[[ClientSocket], None],
    *,
    sync_flush: bool = True,
) -> None:
    """Run the broker with these settings besides SMALL until `use` has ended, then SIGTERM."""
    settings = {**SMALL, **settings, "flushDiskType": "SYNC_FLUSH" if sync_flush else "ASYNC_FLUSH"}
    mark("options", **{name: int(settings[key]) for key, name in STORE_KEYS.items()}, sync_flush=sync_flush)
    mark("settings", **settings)
    mark("derived")
    mark("writing", end=ENDLESS)
    address = "127.0.0.1", free_port()
    faults: list[BaseException] = []
    over = threading.Event()
    client = threading.Thread(target=_client, args=(address, use, faults, over))
    client.start()
    pairs = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    listen = ["--listen", "{}:{}".format(*address), "--namesrv-listen", "off", "--log-level", "error"]
    try:
        run(["broker", "--store", str(root), *listen, *pairs])
    finally:
        over.set()
        client.join()
    if faults:
        raise faults[0]


def _client(
    address: Address,
    use: Callable[[ClientSocket], None],
    faults: list[BaseException],
    over: threading.Event,
) -> None:
    """`over`: the broker has ended, or could not start, and needs no signal."""
    try:
        with _connected(address, over) as connection:
            use(connection)
    except BaseException as error:
        faults.append(error)
    finally:
        if not over.is_set():
            os.kill(os.getpid(), signal.SIGTERM)


def _connected(address: Address, over: threading.Event) -> ClientSocket:
    """As soon as the broker listens."""
    deadline = time.monotonic() + START_S
    while True:
        try:
            return ClientSocket(address)
        except ConnectionError:
            if over.is_set() or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
