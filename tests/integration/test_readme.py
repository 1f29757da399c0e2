"""README's Python examples and commands run as printed, except for port and path.

Java's and Go's examples are run in tests/interop, Spark's in tests/spark.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.readme_examples import README, examples, with_name_server
from tests.support.broker_process import BrokerProcess


def run(example: str) -> list[str]:
    """Lines that the example printed, run in a separate process as a reader would."""
    done = subprocess.run(
        [sys.executable, "-c", example], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def run_clients(broker: BrokerProcess) -> list[list[str]]:
    assert broker.name_server is not None
    port = broker.name_server[1]
    return [run(with_name_server(example, port)) for example in examples("Python", "python")]


def test_the_python_clients_run(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "store") as broker:
        assert run_clients(broker) == [["SEND_OK 0", "orders new ('42',) b'hello'"], ["SEND_OK"]]


def test_the_store_is_read_while_the_broker_runs(tmp_path: Path) -> None:
    [example] = examples("Read a store", "python")
    with BrokerProcess(tmp_path / "store") as broker:
        run_clients(broker)
        first, second = run(example.replace("/path/to/store", str(broker.store)))
    assert first == "orders 0 42 b'hello'"
    assert re.fullmatch(r"orders [01] None b'hello again'", second)


COMMANDS = re.findall(r"^firearrow (\w+) {2,}", README.read_text("utf-8"), re.M)
SUBCOMMANDS = {
    "store": ("verify", "repair", "dump", "stat", "backup"),
    "spark": ("replay", "redrive", "export", "import", "copy", "audit"),
}


def help_of(*words: str) -> str:
    program = "from firearrow.client.cli.main import main; main()"
    command = [sys.executable, "-c", program, *words, "--help"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


def test_readme_and_cli_name_every_command() -> None:
    listed = help_of().split("commands:")[1]
    in_cli = re.findall(r"^## firearrow (\w+)$", (README.parent / "docs/CLI.md").read_text("utf-8"), re.M)
    assert sorted({*COMMANDS, *in_cli, "help", "version"}) == sorted(re.findall(r"^  (\w+) ", listed, re.M))


@pytest.mark.parametrize("command", SUBCOMMANDS)
def test_subcommands_are_named(command: str) -> None:
    listed = help_of(command)
    [line] = re.findall(rf"^firearrow {command} +(.*)$", README.read_text("utf-8"), re.M)
    for name in SUBCOMMANDS[command]:
        assert re.search(rf"^ +{name} ", listed, re.M), name
        assert name in line
