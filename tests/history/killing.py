"""KilledBroker: a broker process that is killed, stopped and restarted, also during its start. One thread."""

import signal
import threading
from pathlib import Path

from firearrow.client.local_broker import LocalBroker, LocalBrokerError
from tests.interop.peers import address
from tests.support.client_socket import ClientSocket


class KilledBroker(LocalBroker):
    """On one store and on the same ports at each start."""

    def __init__(self, store: Path, settings: dict[str, str]) -> None:
        super().__init__(store, settings=settings)

    def start_and_kill(self, after_s: float) -> None:
        """Start it, and kill it that many seconds later: before it is ready, or soon after."""
        old = self.process
        waiting, given_up = threading.Event(), threading.Event()

        def kill() -> None:
            waiting.wait(after_s)
            while self.process is old and not given_up.wait(0.001):
                pass
            self.process.kill()

        killer = threading.Thread(target=kill)
        killer.start()
        try:
            self.start()
        except LocalBrokerError:
            if self.process.returncode != -signal.SIGKILL:
                raise
        finally:
            given_up.set()
            killer.join()
            self.kill()

    def connect(self) -> ClientSocket:
        return ClientSocket(address(self.address))
