"""Units, compose file, workflow, chart and Dockerfile: checked by the schemas and tools of their readers."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from click.testing import CliRunner

from firearrow.broker.base.options import options_by_key
from tests.packaging import install
from tests.packaging.image import health_check
from tests.support.broker_process import BrokerProcess

ROOT = Path(__file__).resolve().parents[2]
PACKAGING = ROOT / "packaging"
CHART = PACKAGING / "helm" / "firearrow"
UNITS = PACKAGING / "systemd"
BIN = Path(sys.executable).parent


def schema_check(*args: str | Path) -> None:
    """As the command of the same name, whose imports take a second."""
    import check_jsonschema  # noqa: PLC0415 (each worker imports this file)

    with warnings.catch_warnings(action="ignore"):
        done = CliRunner().invoke(check_jsonschema.main, [*map(str, args)])
    assert done.exit_code == 0, done.output


def test_the_compose_file_fits_its_schema() -> None:
    schema_check("--builtin-schema", "vendor.compose-spec", PACKAGING / "compose.yaml")


def test_a_workflow_runs_all_that_the_readme_installs() -> None:
    assert set(install.lines()) == set(install.CHECKS)
    steps = (ROOT / ".github" / "workflows" / "nightly.yml").read_text().splitlines()
    assert any(step.endswith("python -m tests.packaging.install") for step in steps)


def test_the_values_of_the_chart_fit_its_schema() -> None:
    schema_check("--schemafile", CHART / "values.schema.json", CHART / "values.yaml")


def test_a_wrong_value_does_not_fit(tmp_path: Path) -> None:
    values = (CHART / "values.yaml").read_text()
    for right, wrong in (
        ("size: 20Gi", "size: much"),
        ("type: ClusterIP", "type: Public"),
        ("brokerName:", "name:"),
    ):
        assert values.count(right) == 1
        (tmp_path / "values.yaml").write_text(values.replace(right, wrong))
        with pytest.raises(AssertionError):
            schema_check("--schemafile", CHART / "values.schema.json", tmp_path / "values.yaml")


@pytest.mark.skipif(shutil.which("helm") is None, reason="there is no helm")
@pytest.mark.parametrize("args", [(), ("--set", "service.type=LoadBalancer,advertise=broker.example:10911")])
def test_the_chart_is_rendered(args: tuple[str, ...]) -> None:
    for command in (["lint", "--strict"], ["template", "test"]):
        done = subprocess.run(
            ["helm", *command, str(CHART), *args], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    kinds = re.findall(r"^kind: (\w+)$", done.stdout, re.M)
    assert sorted(kinds) == ["ConfigMap", "Service", "StatefulSet"]
    assert ("broker.example:10911" if args else "test-firearrow.default.svc:10911") in done.stdout


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze")
@pytest.mark.parametrize("name", ["firearrow.service", "firearrow.socket"])
def test_systemd_accepts_the_units(tmp_path: Path, name: str) -> None:
    for unit in UNITS.glob("firearrow.s*"):
        text = unit.read_text().replace("/usr/bin/firearrow", str(BIN / "firearrow"))
        (tmp_path / unit.name).write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(tmp_path / name)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"SYSTEMD_UNIT_PATH": f"{tmp_path}:"},
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_socket_unit_has_the_default_addresses() -> None:
    port, host = (options_by_key()[key].default for key in ("listenPort", "bindAddress"))
    listening = re.findall(r"^ListenStream=(.*)$", (UNITS / "firearrow.socket").read_text(), re.M)
    assert listening == [f"{host}:{port}", f"{host}:{port - 2}", f"{host}:9876"]


def test_image_and_dockerfile_start_the_same_command() -> None:
    text = (PACKAGING / "Dockerfile").read_text()
    entry_point = json.loads(re.findall(r"^ENTRYPOINT (.*)$", text, re.M)[0])
    script = (PACKAGING / "image" / "build.sh").read_text().replace("\\\n", " ")
    assert re.findall(r"--config\.entrypoint (\S+)", script) == entry_point
    unit = (UNITS / "firearrow.service").read_text()
    command = shlex.split(re.findall(r"^ExecStart=(.*) \$FIREARROW_ARGS$", unit, re.M)[0])
    assert entry_point[: len(command)] == command


def test_the_health_check_fails_without_a_broker_and_not_with_one(tmp_path: Path) -> None:
    _, *words = health_check()
    with BrokerProcess(tmp_path / "store") as broker:
        command = [sys.executable, *(word.replace("10911", str(broker.address[1])) for word in words)]
        assert subprocess.run(command, check=False).returncode == 0
        assert broker.stop() == 0
    assert subprocess.run(command, capture_output=True, check=False).returncode != 0
