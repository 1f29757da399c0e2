"""What works with each Spark, and through Spark Connect: one program in each. docs/SPARK_REFERENCE.md has the list."""

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pyspark
import pytest

import firearrow
from bench.maven import class_path
from firearrow.client import blocking
from firearrow.client.base.message import Message
from firearrow.client.local_broker import LocalBroker
from firearrow.spark_tools.pack import Packed
from tests.interop.toolchain import BUILT, Unavailable, need
from tests.spark.programs import run_program
from tests.spark.stores import BROKER, SETTINGS

DELTA = "io.delta:delta-spark_4.2_2.13:4.4.0"
PROGRAM = Path(__file__).with_name("features.py")
OTHER_SPARK = "FIREARROW_OTHER_SPARK"
"""The interpreter of an environment with another PySpark, pyarrow and what FireArrow needs."""
REFUSED_BY_CONNECT = {"job": "jobs do not run through Spark Connect"}


class Site(NamedTuple):
    name_server: str
    store: Path


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    root = tmp_path_factory.mktemp("features") / BROKER
    with LocalBroker(root, settings=SETTINGS) as broker:
        with blocking.Admin(name_server=broker.name_server) as admin:
            for topic in ("Orders", "Target"):
                admin.create_topic(topic, 1)
        with blocking.Producer("features", name_server=broker.name_server) as producer:
            for number in range(10):
                producer.send(Message("Orders", b'{"id": %d}' % number)).raise_for_status()
        yield Site(broker.name_server, root)


def features(python: str, kind: str, site: Site, folder: Path, environment: dict[str, str]) -> dict[str, str]:
    done = run_program([python, PROGRAM, kind, site.name_server, site.store, folder], environment, folder)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.timeout(400)
def test_spark_connect(site: Site, tmp_path: Path, spark_environment: dict[str, str]) -> None:
    pytest.importorskip("grpc_status")
    found = features(sys.executable, "connect", site, tmp_path, spark_environment)
    found.pop("version")
    refused = {name: text for name, text in found.items() if text != "ok"}
    assert refused.keys() == REFUSED_BY_CONNECT.keys(), refused
    assert all(REFUSED_BY_CONNECT[name] in text for name, text in refused.items()), refused


@pytest.mark.long
@pytest.mark.timeout(400)
def test_the_installed_spark(site: Site, tmp_path: Path, spark_environment: dict[str, str]) -> None:
    found = features(sys.executable, "classic", site, tmp_path, spark_environment)
    found.pop("version")
    assert set(found.values()) == {"ok"}, found


@pytest.fixture(scope="module")
def other_spark() -> dict[str, str]:
    """What a process with another Spark needs; PYSPARK_PYTHON is its interpreter."""
    python = os.environ.get(OTHER_SPARK)
    if python is None:
        pytest.skip(f"{OTHER_SPARK} names no interpreter")
    home = "import pyspark; print(pyspark.__path__[0])"
    installed = subprocess.run([python, "-c", home], capture_output=True, text=True, check=True, timeout=60)
    found = {"PYSPARK_PYTHON": python, "SPARK_HOME": installed.stdout.strip(), "SPARK_LOCAL_IP": "127.0.0.1"}
    return found | {"SPARK_CONF_DIR": f"{found['SPARK_HOME']}/conf"}


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize("kind", ["classic", "connect"])
def test_another_spark(
    site: Site, tmp_path: Path, packed: Packed, other_spark: dict[str, str], kind: str
) -> None:
    """`FIREARROW_OTHER_SPARK=VENV/bin/python pytest --long tests/spark/test_spark_versions.py`: 4.2, beside 4.3."""
    with tarfile.open(packed.path) as archive:
        archive.extractall(tmp_path / "lib", filter="data")
    environment = other_spark | {"PYTHONPATH": str(tmp_path / "lib")}
    found = features(other_spark["PYSPARK_PYTHON"], kind, site, tmp_path, environment)
    assert found.pop("version") != pyspark.__version__
    refused = {name: text for name, text in found.items() if text != "ok"}
    assert refused.keys() == (REFUSED_BY_CONNECT.keys() if kind == "connect" else set()), refused


def delta_jars() -> str:
    try:
        return class_path(BUILT / "delta", DELTA).replace(":", ",")
    except RuntimeError as error:
        raise Unavailable(str(error)) from None


@pytest.mark.long
@pytest.mark.interop
@pytest.mark.timeout(400)
def test_delta_lake_in_spark(site: Site, tmp_path: Path, other_spark: dict[str, str]) -> None:
    """Spark reads what was exported, and appends and compacts; the next export passes over that."""
    need(delta_jars)
    table = str(tmp_path / "orders")
    assert firearrow.to_delta(site.name_server, "Orders", table).rows == 10
    program = PROGRAM.with_name("delta_program.py")
    words = [other_spark["PYSPARK_PYTHON"], program, table, delta_jars()]
    done = run_program(words, other_spark, tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["rows"], found["then"]) == (10, 15)
    assert found["offsets"]["Orders"] == {BROKER: {"0": 10}}
    assert firearrow.to_delta(site.name_server, "Orders", table).rows == 0
