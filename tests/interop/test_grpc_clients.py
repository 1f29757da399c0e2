"""Apache's clients of 5.x, which speak gRPC, against our broker alone: each program runs its scenarios at once."""

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from firearrow._native.wire.codes import RequestCode
from tests.auth.secured import create_user, grant
from tests.grpc.conftest import SETTINGS
from tests.integration.pops import ack_ext, pop_ext, records
from tests.interop.driver import Driver, java
from tests.interop.toolchain import go5, java_class_path, need, node5, python5, rust5
from tests.support.broker_process import WAYS, BrokerProcess
from tests.support.certificates import CertificateFiles
from tests.support.client_socket import ClientSocket
from tests.support.grpc_caller import GrpcCaller, create_group, create_topic
from tests.support.requests import pull, send

pytestmark = pytest.mark.interop

TYPES = {
    "fifo": "FIFO",
    "dlq-fifo": "FIFO",
    "delay": "DELAY",
    "recall": "DELAY",
    "transaction": "TRANSACTION",
    "orphan": "TRANSACTION",
    "priority": "PRIORITY",
    "wrong-type": "FIFO",
    "lite": "LITE",
}
GROUPS: dict[str, dict[str, object]] = {
    "fifo": {"consumeMessageOrderly": True},
    "dlq": {"retryMaxTimes": 0},
    "dlq-fifo": {"consumeMessageOrderly": True, "retryMaxTimes": 0},
    "lite": {"consumeMessageOrderly": True, "attributes": {"+lite.bind.topic": "lite"}},
}
COMMON = [
    *("normal", "simple", "fifo", "delay", "transaction", "orphan"),
    *("tag", "sql", "large", "wrong-type"),
]
PUSH = ["async", "invisible", "retry", "dlq", "dlq-fifo", "mixed", "unknown"]
"""What the client of Rust, which has no push consumer, lacks."""
SCENARIOS = {
    "java": [*COMMON, "async", "invisible", "recall", "retry", "priority", "lite"],
    "python": [*COMMON, "invisible", "recall"],
    "go": [*COMMON, *PUSH],
    "node": [*COMMON, *PUSH, "recall", "priority"],
    "rust": [*COMMON, "async", "mixed", "unknown"],
}
WITHIN_S = 240
PROGRAMS = Path(__file__).parent
PREPARED: dict[str, Callable[[], Path]] = {"go": go5, "node": node5, "rust": rust5}
AUTHORITIES = ("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", "SSL_CERT_FILE")
"""The variables by which the clients of Node.js and Rust, which check certificates, know the authority."""
LONG = pytest.param("rust", marks=pytest.mark.long)
"""The first build of its program takes several CPU minutes."""


def topics(connection: ClientSocket, scenarios: list[str]) -> list[str]:
    """Create what the scenarios need; the arguments of the program."""
    for name in set(scenarios) - {"unknown"}:
        create_topic(connection, name, TYPES.get(name, "NORMAL"))
        create_group(connection, f"{name}-g", **GROUPS.get(name, {}))
    for name in {"dlq", "dlq-fifo"} & set(scenarios):
        create_group(connection, name)  # it reads the dead letters
    return [f"{name}={name}" for name in scenarios]


def run(
    command: list[str], home: Path, scenarios: list[str], environment: dict[str, str] | None = None
) -> None:
    """AssertionError: one of the scenarios has not passed."""
    log = home / "errors.log"
    with log.open("wb") as errors:
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            timeout=WITHIN_S,
            check=False,
            cwd=home,
            env=os.environ | (environment or {}),
        )
    lines = [line for line in done.stdout.splitlines() if line.startswith(("passed ", "failed "))]
    passed = sorted(lines) == sorted(f"passed {name}" for name in scenarios)
    assert passed, f"{done.stdout}exit code {done.returncode}\n{log.read_text()[-4000:]}"


def command(client: str, home: Path) -> list[str]:
    """The program of this client, without its arguments."""
    if client == "java":
        need(lambda: java_class_path("grpc5"))
        return java("grpc5", "Scenarios", home, "-Xmx400m")
    if client == "python":
        need(python5)
        return [str(python5()), str(PROGRAMS / "python5" / "scenarios.py")]
    need(PREPARED[client])
    program = str(PREPARED[client]())
    if client != "node":
        return [program]
    return ["env", f"NODE_PATH={program}", f"HOME={home}", "node", str(PROGRAMS / "node5" / "scenarios.js")]


def pop(connection: ClientSocket, count: int, **more: str) -> list[bytes]:
    """As another member of the group of the scenario `mixed`, which acknowledges what it gets."""
    member = {"consumerGroup": "mixed-g"}
    ext = pop_ext("mixed", maxMsgNums=str(count), **member, **more)
    answer = connection.ask(RequestCode.POP_MESSAGE, ext)
    assert answer.code == 0, answer.remark
    for record in records(answer):
        assert connection.ask(RequestCode.ACK_MESSAGE, ack_ext(answer, record) | member).code == 0
    return [record.body for record in records(answer)]


@contextmanager
def remoting_members(connection: ClientSocket) -> Iterator[None]:
    """Remoting clients send, and take part in the group, before and after the clients of gRPC."""
    for n in range(5):
        send(connection, "mixed", b"remoting%d" % n, tag="tag")
    assert pop(connection, 2) == [b"remoting0", b"remoting1"]
    yield
    pulled = [pull(connection, "mixed", queue_id=queue) for queue in range(4)]
    found = {record.body: record for answer in pulled for record in records(answer)}
    assert sorted(found) == sorted(b"%b%d" % (by, n) for by in (b"grpc", b"remoting") for n in range(5))
    properties = found[b"grpc3"].properties
    assert (properties["TAGS"], properties["KEYS"], properties["n"]) == ("tag", "k3", "3")
    send(connection, "mixed", b"last", tag="tag")
    assert pop(connection, 32, pollTime="10000") == [b"last"]


@pytest.mark.parametrize("client", ["java", "python", "go", "node", LONG])
def test_all_scenarios_pass(client: str, tmp_path: Path) -> None:
    program = command(client, tmp_path / "home")
    scenarios = SCENARIOS[client]
    with BrokerProcess(tmp_path / "store", *SETTINGS, way=WAYS["engine"]) as broker:
        with broker.connect() as connection:
            arguments = topics(connection, scenarios)
            members = remoting_members(connection) if "mixed" in scenarios else nullcontext()
            with members:
                run([*program, "{}:{}".format(*broker.address), *arguments], tmp_path, scenarios)
        assert broker.stop() == 0
        assert "Traceback" not in broker.log.read_text()


@pytest.mark.parametrize("client", ["java", "go", "node", LONG])
def test_tls_and_users(client: str, tmp_path: Path) -> None:
    """The user of the clients has rights for one topic and its group alone."""
    program = command(client, tmp_path / "home")
    users = ("--set", "authenticationEnabled=true", "--set", "authorizationEnabled=true")
    first = ("--set", 'initAuthenticationUser={"username":"admin","password":"admin-word"}')
    files = CertificateFiles(tmp_path / "tls")
    with BrokerProcess(tmp_path / "store", *SETTINGS, *users, *first, *files.arguments) as broker:
        with ClientSocket(broker.address, tls=files.client(), keys=("admin", "admin-word")) as connection:
            arguments = topics(connection, ["normal", "simple"])
            create_user(connection, "app", "app-word")
            grant(connection, "app", "Topic:normal", "Pub", "Sub")
            grant(connection, "app", "Group:normal-g", "Sub")
        asked = [*program, f"localhost:{broker.address[1]}"]
        right = {"INTEROP_TLS": "1", "INTEROP_ACCESS_KEY": "app", "INTEROP_SECRET_KEY": "app-word"}
        right |= dict.fromkeys(AUTHORITIES, files.path("authority.pem"))
        run([*asked, arguments[0], "refused=simple"], tmp_path, ["normal", "refused"], right)
        wrong = right | {"INTEROP_SECRET_KEY": "wrong"}
        run([*asked, "refused=normal"], tmp_path, ["refused"], wrong)
        assert broker.stop() == 0


def test_mqadmin_knows_groups_of_grpc(tmp_path: Path) -> None:
    """Their retry topics are there, by which it finds what a group reads."""
    need(lambda: java_class_path("client5"))
    with BrokerProcess(tmp_path / "store", *SETTINGS) as broker:
        assert broker.name_server is not None
        with broker.connect() as connection:
            create_topic(connection, "T", queues=1)
            create_group(connection, "G")
        mqadmin = Driver("java5", "{}:{}".format(*broker.name_server), tmp_path / "home")
        try:
            with GrpcCaller(broker.address, "client@1") as caller:
                caller.consume("G", "T", kind="PUSH_CONSUMER")
                caller.send("T", b"0", b"1")
                caller.ack("G", "T", *caller.receive("G", "T", count=1))
                for line, printed in (
                    ("consumerProgress -g G", r"T +broker-a +0 +2 +1"),
                    ("consumerProgress", r"G +1 +V5_5_0 +PUSH +CLUSTERING"),
                    ("consumerConnection -g G", r"client@1 +127.0.0.1:\d+ +PYTHON +V5_5_0"),
                ):
                    [output] = mqadmin.ask("mqadmin", argument=line.split())
                    assert re.search(printed, output["text"]), output["text"]
        finally:
            mqadmin.stop()
