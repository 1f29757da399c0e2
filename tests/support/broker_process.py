"""BrokerProcess: a real `firearrow broker` in a separate process, on free ports."""

import atexit
import os
import re
import shutil
import ssl
import tempfile
from functools import cache
from pathlib import Path
from types import TracebackType

from firearrow.client.local_broker import LocalBroker
from tests.support.certificates import CertificateFiles
from tests.support.client_socket import ClientSocket

WAYS = {
    "complete": ("fastPath=false", "fastSockets=false"),
    "transports": ("fastPath=true", "fastSockets=false"),
    "engine": ("fastPath=true", "fastSockets=true"),
}
"""The request path: FIREARROW_TEST_WAY selects another one for every test of a process. `tls` is `engine`, but brokers
accept TLS, and a ClientSocket of the tests speaks it."""
CHOSEN = os.environ.get("FIREARROW_TEST_WAY", "engine")
WAY = WAYS["engine" if CHOSEN == "tls" else CHOSEN]


@cache
def shared_certificates() -> CertificateFiles:
    """Those of the way `tls`, for all brokers of this process."""
    folder = tempfile.mkdtemp(prefix="firearrow-certificates-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return CertificateFiles(Path(folder))


class BrokerProcess:
    """`firearrow broker` on free ports. Its log goes to `broker.log` beside the store."""

    def __init__(
        self,
        store: Path,
        *args: str,
        environment: dict[str, str] | None = None,
        wait_s: float = 30,
        way: tuple[str, ...] = WAY,
    ) -> None:
        arguments = (*(word for option in way for word in ("--set", option)), *args)
        self.tls: ssl.SSLContext | None = None
        if CHOSEN == "tls" and way is WAY and "--tls-cert" not in args and "--config" not in args:
            arguments += shared_certificates().arguments
            self.tls = shared_certificates().client()
        self.running = LocalBroker(store, arguments=arguments, environment=environment, wait_s=wait_s)
        self.store = store
        self.log = self.running.log
        self.process = self.running.process
        self.line = self.running.line
        ready = self.running.ready
        self.address = (ready["host"], int(ready["port"]))
        self.name_server = (ready["ns_host"], int(ready["ns_port"])) if ready["ns_port"] else None
        self.topics = int(ready["topics"])
        self.seconds = float(ready["seconds"])

    def connect(self) -> ClientSocket:
        return ClientSocket(self.address, tls=self.tls)

    def connect_name_server(self) -> ClientSocket:
        assert self.name_server is not None
        return ClientSocket(self.name_server, tls=self.tls)

    def stop(self, within_s: float = 10) -> int:
        """SIGTERM, and the exit code."""
        return self.running.stop(within_s)

    def kill(self) -> None:
        """SIGKILL; nothing is flushed."""
        self.running.kill()

    def anonymous_kib(self) -> int:
        """RssAnon of the process."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"RssAnon:\s+(\d+) kB", status)[1])  # type: ignore[index]

    def __enter__(self) -> "BrokerProcess":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
