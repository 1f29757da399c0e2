"""Scene: a master with messages, a sender of its log, and the folder of a slave that follows it."""

from pathlib import Path

from tests.replication.pairs import (
    SEGMENT,
    digests,
    end_of,
    fill,
    name_server,
    start_master,
    start_slave,
)
from tests.replication.sender import Sender
from tests.support.broker_process import BrokerProcess
from tests.support.client_socket import ClientSocket
from tests.support.eventually import WITHIN_S, eventually

CLEANED = {"cleanResourceInterval": "100", "deleteCommitLogFilesInterval": "0"}
"""So that files are deleted as soon as they have expired."""


class Scene:
    """A master with some messages, a sender of its log, and the folder of a slave."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self.master = start_master(folder / "master", **(CLEANED | settings))
        self.connection = self.master.connect()
        self.store = folder / "slave"
        self.limit: int | None = None
        self.sender = Sender(folder / "master" / "commitlog", self.end, SEGMENT)

    def end(self) -> int:
        return self._end if self.limit is None else min(self.limit, self._end)

    def fill(self, count: int, size: int = 300) -> None:
        fill(self.connection, count, size)
        self._end = end_of(self.connection)

    _end = 0

    def slave(self, **settings: str) -> BrokerProcess:
        return start_slave(self.store, name_server(self.master), self.sender.address, **settings)

    def caught_up(self, connection: ClientSocket, within_s: float = WITHIN_S) -> None:
        eventually(lambda: end_of(connection) == self.end(), within_s, f"the log's end {self.end()}")

    def equal(self) -> None:
        end = self.end()
        assert digests(self.store, end) == digests(self.master.store, end)

    def close(self) -> None:
        self.connection.close()
        self.sender.close()
        self.master.kill()
