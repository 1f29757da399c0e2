"""BrokerProcess: a real `firearrow broker` in a separate process, on free ports."""

import atexit
import json
import re
import shutil
import ssl
import tempfile
from functools import cache
from pathlib import Path

from firearrow.broker.base.options import Options
from firearrow.broker.maintenance.verify import VerifyOptions, verify
from firearrow.client.local_broker import LocalBroker
from tests.support.certificates import CertificateFiles
from tests.support.client_socket import ClientSocket
from tests.support.startup import startup_environment
from tests.support.ways import CHOSEN

WAYS = {
    "complete": ("fastPath=false", "fastSockets=false"),
    "transports": ("fastPath=true", "fastSockets=false"),
    "engine": ("fastPath=true", "fastSockets=true"),
}
"""The request path: FIREARROW_TEST_WAY selects another one for every test of a process. `tls` is `engine`, but brokers
accept TLS, and a ClientSocket of the tests speaks it. `users` is `engine`, but brokers check users and rules, and a
ClientSocket signs as TESTER, whose rules allow everything."""
WAY = WAYS["engine" if CHOSEN in ("tls", "users") else CHOSEN]
TESTER = ("tester", "tester-word")
LEVELS = "messageDelayLevel="
OF_USERS = ("authenticationEnabled", "aclEnable")
"""Options of tests that choose users themselves."""
WITH_USERS = (
    *("--set", "authenticationEnabled=true"),
    *("--set", "authorizationEnabled=true"),
    *(
        "--set",
        f"innerClientAuthenticationCredentials={json.dumps({'accessKey': 'inner', 'secretKey': 'inner-word'})}",
    ),
)
"""The inner user is a Super user: brokers register with each other's name servers as it does."""
USERS = {"users": [{"username": TESTER[0], "password": TESTER[1], "userType": "Normal"}]}
EVERYTHING = [
    {"resource": resource, "actions": ["All"], "decision": "Allow"}
    for resource in ("Topic:*", "Group:*", "Cluster:*")
]
ACLS = {
    "acls": [{"subject": f"User:{TESTER[0]}", "policies": [{"policyType": "Custom", "entries": EVERYTHING}]}]
}


def create_tester(store: Path) -> None:
    """The files of a broker whose only user is TESTER but for the inner one, unless there are users."""
    folder = store / "config"
    if not (folder / "users.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in (("users", USERS), ("acls", ACLS)):
            file = folder / f"{name}.json"
            file.touch(0o600)
            file.write_text(json.dumps(content))


@cache
def shared_certificates() -> CertificateFiles:
    """Those of the way `tls`, for all brokers of this process."""
    folder = tempfile.mkdtemp(prefix="firearrow-certificates-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return CertificateFiles(Path(folder))


def check_store(store: Path, arguments: tuple[str, ...] = ()) -> None:
    """As `firearrow store verify` does, in this process: some milliseconds for a store of a few MiB. `arguments`: of
    the broker, which may have delay levels of its own."""
    levels = [word.removeprefix(LEVELS) for word in arguments if word.startswith(LEVELS)]
    options = Options(delay_levels=levels[-1]) if levels else Options()
    delays_s = tuple(each // 1000 for each in options.delay_levels_ms)
    seen = verify(str(store), VerifyOptions(jobs=1, delays_s=delays_s))
    assert seen.clean, [
        f"{each.kind}: {each.where.file} at {each.where.position}: {each.text}" for each in seen.findings
    ]


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
        self.keys: tuple[str, str] | None = None
        own = "--config" in args or any(word.partition("=")[0] in OF_USERS for word in args)
        if CHOSEN == "users" and way is WAY and not own:
            create_tester(store)
            arguments += WITH_USERS
            self.keys = TESTER
        if CHOSEN == "tls" and way is WAY and "--tls-cert" not in args and "--config" not in args:
            arguments += shared_certificates().arguments
            self.tls = shared_certificates().client()
        environment = startup_environment() | (environment or {})
        self.running = LocalBroker(store, arguments=arguments, environment=environment, wait_s=wait_s)
        self.store, self.arguments = store, arguments
        self.log = self.running.log
        self.process = self.running.process
        self.line = self.running.line
        ready = self.running.ready
        self.address = (ready["host"], int(ready["port"]))
        self.name_server = (ready["ns_host"], int(ready["ns_port"])) if ready["ns_port"] else None
        self.topics = int(ready["topics"])
        self.seconds = float(ready["seconds"])

    def connect(self) -> ClientSocket:
        return ClientSocket(self.address, tls=self.tls, keys=self.keys)

    def connect_name_server(self) -> ClientSocket:
        assert self.name_server is not None
        return ClientSocket(self.name_server, tls=self.tls, keys=self.keys)

    def stop(self, within_s: float = 10, *, verified: bool = True) -> int:
        """SIGTERM, and the exit code. Whatever the test did, a store that was stopped cleanly has no findings, unless
        the test damaged it: then `verified` is False."""
        code = self.running.stop(within_s)
        if code == 0 and verified:
            check_store(self.store, self.arguments)
        return code

    def kill(self) -> None:
        """SIGKILL; nothing is flushed."""
        self.running.kill()

    def anonymous_kib(self) -> int:
        """RssAnon of the process."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"RssAnon:\s+(\d+) kB", status)[1])  # type: ignore[index]

    def __enter__(self) -> "BrokerProcess":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
