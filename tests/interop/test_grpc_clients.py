"""Apache's clients of 5.x, which speak gRPC, against our broker alone: each program runs its scenarios at once."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.grpc.conftest import SETTINGS
from tests.interop.driver import java
from tests.interop.toolchain import java_class_path, need, python5
from tests.support.broker_process import WAYS, BrokerProcess
from tests.support.certificates import CertificateFiles
from tests.support.client_socket import ClientSocket
from tests.support.grpc_caller import create_group, create_topic

pytestmark = pytest.mark.interop

TYPES = {
    "fifo": "FIFO",
    "delay": "DELAY",
    "recall": "DELAY",
    "transaction": "TRANSACTION",
    "orphan": "TRANSACTION",
    "priority": "PRIORITY",
    "wrong-type": "FIFO",
}
COMMON = [
    *(
        "normal",
        "simple",
        "invisible",
        "fifo",
        "delay",
        "recall",
        "transaction",
        "orphan",
        "tag",
        "sql",
        "large",
    ),
    "wrong-type",
]
SCENARIOS = {"java": [*COMMON, "async", "retry", "priority"], "python": COMMON}
WITHIN_S = 240
PROGRAM = Path(__file__).parent / "python5" / "scenarios.py"


def topics(connection: ClientSocket, scenarios: list[str]) -> list[str]:
    """Create what the scenarios need; the arguments of the program."""
    for name in scenarios:
        create_topic(connection, name, TYPES.get(name, "NORMAL"))
        create_group(connection, f"{name}-g", consumeMessageOrderly=name == "fifo")
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
    assert sorted(lines) == sorted(f"passed {name}" for name in scenarios), log.read_text()[-4000:]


def command(client: str, home: Path) -> list[str]:
    if client == "python":
        need(python5)
        return [str(python5()), str(PROGRAM)]
    need(lambda: java_class_path("grpc5"))
    return java("grpc5", "Scenarios", home, "-Xmx400m")


@pytest.mark.parametrize("client", ["java", "python"])
def test_all_scenarios_pass(client: str, tmp_path: Path) -> None:
    program = command(client, tmp_path / "home")
    with BrokerProcess(tmp_path / "store", *SETTINGS, way=WAYS["engine"]) as broker:
        with broker.connect() as connection:
            arguments = topics(connection, SCENARIOS[client])
        run([*program, "{}:{}".format(*broker.address), *arguments], tmp_path, SCENARIOS[client])
        assert broker.stop() == 0
        assert "Traceback" not in broker.log.read_text()


def test_java_uses_tls_and_is_refused_without_rights(tmp_path: Path) -> None:
    program = command("java", tmp_path / "home")
    users = ("--set", "authenticationEnabled=true", "--set", "authorizationEnabled=true")
    first = ("--set", 'initAuthenticationUser={"username":"admin","password":"admin-word"}')
    files = CertificateFiles(tmp_path / "tls")
    with BrokerProcess(tmp_path / "store", *SETTINGS, *users, *first, *files.arguments) as broker:
        with ClientSocket(broker.address, tls=files.client(), keys=("admin", "admin-word")) as connection:
            arguments = topics(connection, ["normal"])
        asked = [*program, "{}:{}".format(*broker.address)]
        right = {"INTEROP_TLS": "1", "INTEROP_ACCESS_KEY": "admin", "INTEROP_SECRET_KEY": "admin-word"}
        run([*asked, *arguments], tmp_path, ["normal"], right)
        wrong = right | {"INTEROP_SECRET_KEY": "wrong"}
        run([*asked, "refused=normal"], tmp_path, ["refused"], wrong)
        assert broker.stop() == 0
