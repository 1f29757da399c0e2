"""JUnit 5 extension, Go module and pytest plugin for tests of services: their own tests and their examples' pass.

They start the command `firearrow` of this environment.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.interop.toolchain import FETCH_S, fetch_go_modules, need, run_maven

pytestmark = pytest.mark.interop
ROOT = Path(__file__).resolve().parents[2]
JUNIT5 = ROOT / "packaging" / "junit5"
GO = ROOT / "packaging" / "go"
CLIENT_4 = "4.9.8"
"""Of Apache's Java client; the project's own is 5.5.0."""


@pytest.fixture(autouse=True)
def command(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command of this environment, found by its variable; JVMs that compile little, as they soon end."""
    monkeypatch.setenv("FIREARROW_COMMAND", str(Path(sys.executable).with_name("firearrow")))
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


@pytest.fixture
def junit5(tmp_path: Path) -> Path:
    """A copy of the Maven project, so that nothing is built among the sources."""
    return shutil.copytree(JUNIT5, tmp_path / "junit5", ignore=shutil.ignore_patterns("target"))


def reported(module: Path) -> dict[str, int]:
    """Class → how many of its tests passed, from Surefire's reports. AssertionError: one was skipped or failed."""
    passed: dict[str, int] = {}
    for report in (module / "target" / "surefire-reports").glob("TEST-*.xml"):
        suite = ElementTree.parse(report).getroot()
        assert {suite.get(kind) for kind in ("errors", "failures", "skipped")} == {"0"}, report.read_text()
        passed[str(suite.get("name")).rpartition(".")[2]] = int(suite.get("tests", 0))
    return passed


def run(command: list[str], folder: Path) -> str:
    """The output of a program that must succeed."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=FETCH_S, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return done.stdout


def test_junit5(junit5: Path) -> None:
    need(lambda: run_maven(junit5))
    found = reported(junit5 / "extension")
    assert found.keys() >= {"PerClassTest", "PerTestTest", "ParameterTest", "StartAndStopTest"}
    assert sum(found.values()) == 18
    assert reported(junit5 / "example") == {"InvoicesTest": 1}


@pytest.mark.long
def test_junit5_with_apaches_client_4(junit5: Path) -> None:
    only = ("-pl", "example", "-am", "-Dtest=InvoicesTest", "-Dsurefire.failIfNoSpecifiedTests=false")
    need(lambda: run_maven(junit5, *only, f"-Drocketmq.client.version={CLIENT_4}"))
    assert reported(junit5 / "example") == {"InvoicesTest": 1}
    [report] = (junit5 / "example" / "target" / "surefire-reports").glob("TEST-*.xml")
    assert f"rocketmq-client-{CLIENT_4}.jar" in report.read_text("utf-8")


@pytest.mark.parametrize(
    ("module", "tests"), [("firearrowtest", 9), ("example", 1)], ids=["own-go", "example-go"]
)
def test_go(module: str, tests: int) -> None:
    folder = GO / module
    need(lambda: fetch_go_modules(folder))
    assert run(["gofmt", "-l", "."], folder) == ""
    run(["go", "vet", "-mod=readonly", "./..."], folder)
    output = run(["go", "test", "-mod=readonly", "-count=1", "-v", "./..."], folder)
    assert len(re.findall(r"^--- PASS: ", output, re.M)) == tests, output


@pytest.mark.parametrize(
    "options",
    [
        pytest.param((), id="alone-python", marks=pytest.mark.long),
        pytest.param(("-n", "2"), id="xdist-python"),
    ],
)
def test_pytest(options: tuple[str, ...], tmp_path: Path) -> None:
    for source in (ROOT / "examples" / "pytest").glob("*.py"):
        shutil.copy(source, tmp_path)
    every = ["-q", "-W", "error", "-p", "no:cacheprovider", "--basetemp", str(tmp_path / "tmp")]
    assert "2 passed" in run([sys.executable, "-m", "pytest", *every, *options, str(tmp_path)], tmp_path)
