"""FastBroker: the broker of `tests.soak.broker` as a process, with files so small that a second fills many."""

import os
from pathlib import Path

from firearrow.client.local_broker import LocalBroker
from tests.support.client_socket import ClientSocket

ROOT = Path(__file__).resolve().parents[2]
SEGMENT_BYTES, QUEUE_FILE_BYTES = 1 << 18, 2000
SMALL = {
    "mappedFileSizeCommitLog": str(SEGMENT_BYTES),
    "mappedFileSizeConsumeQueue": str(QUEUE_FILE_BYTES),
    "maxHashSlotNum": "1000",
    "maxIndexNum": "4000",
    "maxMessageSize": "65536",
    "fileReservedTime": "1",
    "deleteWhen": ";".join(str(hour) for hour in range(24)),
    "cleanResourceInterval": "100",
    "deleteFileBatchMax": "1000",
    "deleteCommitLogFilesInterval": "0",
    "deleteConsumeQueueFilesInterval": "0",
}


class FastBroker(LocalBroker):
    """`rate` seconds of its clock in one of ours."""

    _module = "tests.soak.broker"

    def __init__(self, store: Path, *, rate: int = 3600, **settings: str) -> None:
        environment = {"FIREARROW_CLOCK_RATE": str(rate), "PYTHONPATH": str(ROOT)}
        super().__init__(store, settings=SMALL | settings, environment=environment)

    def connect(self) -> ClientSocket:
        host, _, port = self.address.rpartition(":")
        return ClientSocket((host, int(port)))

    def set_disk_used(self, used: float) -> None:
        """How full the disk is from now on."""
        fresh = Path(f"{self.store}.fresh")
        fresh.write_text(str(used))
        fresh.replace(f"{self.store}.disk")

    def segments(self) -> list[int]:
        return sorted(int(name) for name in os.listdir(self.store / "commitlog"))
