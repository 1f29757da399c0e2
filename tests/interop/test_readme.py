"""README's Java and Go examples compile and run as printed, except for the port: of the name server, or over gRPC the
broker's.

Java's producer also gets a longer send timeout: 3 s do not suffice for a JVM's first send on a busy machine.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.interop.driver import java
from tests.interop.toolchain import GO, go_driver, java_class_path, need
from tests.readme_examples import examples, with_name_server
from tests.support.broker_process import BrokerProcess
from tests.support.command_line import here

pytestmark = pytest.mark.interop
COMPILE_S = 240
RUN_S = 120
"""Seconds. A consumer's first rebalance can take 20 s."""
LOGGING = re.compile(r"[\d:,]+ \|-(INFO|WARN) in org\.apache\.rocketmq\.")
"""What Apache's logging prints about its own configuration."""


def compile_java(source: str, folder: Path) -> list[str]:
    """The command that runs class `Orders`."""
    need(lambda: java_class_path("client5"))
    patient = source.replace("producer.start();", "producer.setSendMsgTimeout(30_000); producer.start();")
    assert patient != source
    (folder / "Orders.java").write_text(patient, "utf-8")
    jars = java_class_path("client5")
    options = ["-proc:none", "-encoding", "UTF-8", "-cp", jars, "-d", str(folder)]
    run(["javac", *options, str(folder / "Orders.java")], folder, COMPILE_S)
    command = java("client5", "Orders", folder / "home", "-Xmx256m")
    return [f"{jars}:{folder}" if word == jars else word for word in command]


def compile_java5(source: str, folder: Path) -> list[str]:
    """The same with Apache's client of gRPC."""
    need(lambda: java_class_path("grpc5"))
    (folder / "Orders.java").write_text(source, "utf-8")
    jars = java_class_path("grpc5")
    run(
        ["javac", "-encoding", "UTF-8", "-cp", jars, "-d", str(folder), str(folder / "Orders.java")],
        folder,
        COMPILE_S,
    )
    command = java("grpc5", "Orders", folder / "home", "-Xmx256m")
    return [f"{jars}:{folder}" if word == jars else word for word in command]


def compile_go(source: str, folder: Path) -> list[str]:
    """The command that runs the program, built with the module versions of the driver's `go.mod`."""
    need(go_driver)
    for name in ("go.mod", "go.sum"):
        shutil.copy(GO / name, folder)
    (folder / "main.go").write_text(source, "utf-8")
    run(["go", "build", "-mod=readonly", "-o", "orders", "."], folder, COMPILE_S)
    return [str(folder / "orders")]


COMPILERS = {"java": ("Java", compile_java), "go": ("Go", compile_go)}


def run(command: list[str], folder: Path, within_s: float) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | ({} if command[0] == "go" else {"HOME": str(folder)}),
        capture_output=True,
        text=True,
        timeout=within_s,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("language", COMPILERS)
def test_the_example_sends_and_receives(language: str, tmp_path: Path) -> None:
    heading, compiled = COMPILERS[language]
    [example] = examples(heading, language)
    with BrokerProcess(tmp_path / "store") as broker:
        assert broker.name_server is not None
        folder = tmp_path / language
        folder.mkdir()
        command = compiled(with_name_server(example, broker.name_server[1]), folder)
        printed = [
            line for line in run(command, folder, RUN_S).splitlines() if line and not LOGGING.match(line)
        ]
    sent = ["SEND_OK"] if language == "java" else []
    assert printed == [*sent, "hello"]


def test_the_example_of_grpc_sends_and_receives(tmp_path: Path) -> None:
    """After the commands above it."""
    [example], [commands] = examples("Java 5", "java"), examples("Java 5", "sh")
    with BrokerProcess(tmp_path / "store") as broker:
        assert broker.name_server is not None
        for line in commands.splitlines():
            here(*line.split()[1:], name_server="{}:{}".format(*broker.name_server)).succeeded()
        assert ":8081" in example
        command = compile_java5(example.replace(":8081", f":{broker.address[1]}"), tmp_path)
        assert run(command, tmp_path, RUN_S).splitlines() == ["hello"]


def test_the_versions_are_those_that_are_tested() -> None:
    """README names the versions of the class path and of the Go module."""
    text = (GO.parents[2] / "README.md").read_text("utf-8")
    version = (GO.parent / "java" / "client5" / "pom.xml").read_text("utf-8")
    grpc5 = (GO.parent / "java" / "grpc5" / "pom.xml").read_text("utf-8")
    assert f"rocketmq-client-java:{grpc5.split('<version>')[2].split('<')[0]}`" in text
    assert f"rocketmq-client:{version.split('<rocketmq.version>')[1].split('<')[0]}" in text
    [module] = [
        line for line in (GO / "go.mod").read_text("utf-8").splitlines() if "rocketmq-client-go" in line
    ]
    assert module.removeprefix("require ") in text
