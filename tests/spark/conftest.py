"""What tests of the Spark tools share: one session, one broker, one known store a run; Apache's stores unpacked.

The session is `local[2,3]`: a task is tried three times. Under xdist each worker process has its own session.
Spark talks on the loopback only, writes below the run's temporary folder only, and ends with the run.
"""

import logging
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Generator, Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from firearrow.client import blocking
from firearrow.client.local_broker import LocalBroker
from firearrow.spark_tools.offline import index_plan
from firearrow.spark_tools.pack import Packed, pack
from firearrow.spark_tools.sessions import register
from tests.interop.peer_fixture import peer
from tests.spark.damaged_store import COUNT, fill
from tests.spark.indexed_store import fill_indexed
from tests.spark.spark_home import QUICK_JVM, environment
from tests.spark.stores import BROKER, SETTINGS, Golden, KnownStore, send_known, unpacked
from tests.support.stores import open_store

__all__ = ["peer"]

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]
JAVA_MIN = 17
WARNINGS_NOT_OURS = (
    "ignore::DeprecationWarning:pyspark",
    "ignore::FutureWarning:pyspark",
    "ignore::ResourceWarning:py4j",
    "ignore:unclosed:ResourceWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
)
INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
"""To generate and compile code for each small query takes longer than to run it. Programs that tests start do it."""
_numbers = count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Warnings of PySpark are no errors of ours: they are ignored in tests with a session."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and "spark" in getattr(item, "fixturenames", ()):
            for text in WARNINGS_NOT_OURS:
                item.add_marker(pytest.mark.filterwarnings(text))


def java_lack() -> str | None:
    """Why no session can run here, in one line; None if it can."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin" if home else None)
    if java is None:
        return f"needs Java {JAVA_MIN}, and there is no java"
    version_text = subprocess.run(
        [java, "-version"], capture_output=True, text=True, timeout=30, check=False
    ).stderr
    version = re.search(r'version "(\d+)', version_text)
    if version is None or int(version[1]) < JAVA_MIN:
        return f"needs Java {JAVA_MIN}, and {java} is {version_text.splitlines()[0] if version_text else 'silent'}"
    return None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    """PySpark's loggers propagate again after a test, before pytest looks at them for the teardown.

    From 9.2 on, pytest adds its one capturing handler to every logger that does not propagate, and `PySparkLogger`
    gives each handler its own JSON format: `caplog.text` was JSON for all later tests of the process.
    """
    try:
        return (yield)
    finally:
        for logger in logging.Logger.manager.loggerDict.values():
            if isinstance(logger, logging.Logger):
                logger.propagate = True


@pytest.fixture(scope="session")
def java() -> None:
    """Skips without Java; fails if FIREARROW_INTEROP=required."""
    lack = java_lack()
    if lack is not None and os.environ.get("FIREARROW_INTEROP") == "required":
        pytest.fail(f"spark: {lack}", pytrace=False)
    if lack is not None:
        pytest.skip(f"spark: {lack}")


@pytest.fixture(scope="session")
def spark_environment(java: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What a process that starts Spark needs."""
    return environment(tmp_path_factory.mktemp("environment"))


@pytest.fixture(scope="session")
def installed_environment(
    spark_environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """`spark_environment` with `pyspark_firearrow`, as an installation that is not editable has it."""
    packages = tmp_path_factory.mktemp("packages")
    (packages / "pyspark_firearrow").symlink_to(ROOT / "spark_tools" / "discovery")
    return {**spark_environment, "PYTHONPATH": f"{packages}{os.pathsep}{ROOT}"}


@pytest.fixture(scope="session")
def spark_settings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Of every session of the tests: no UI, a heap of 1 GiB, quick to start, files in a temporary folder only."""
    folder = tmp_path_factory.mktemp("spark")
    return {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": (f"{QUICK_JVM} -Duser.timezone=UTC -Djava.io.tmpdir={folder}"),
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
        "spark.log.level": "ERROR",
    }


@pytest.fixture(scope="session")
def spark(spark_environment: dict[str, str], spark_settings: dict[str, str]) -> "Iterator[SparkSession]":
    """The one session of this process, `local[2,3]`, with the data source registered."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 (a session is what costs, the import comes with it)

    builder = SparkSession.builder.master("local[2,3]").appName("firearrow tests")
    for name, value in {**spark_settings, **INTERPRETED}.items():
        builder = builder.config(name, value)
    with pytest.MonkeyPatch.context() as environment:
        for name, value in spark_environment.items():
            environment.setenv(name, value)
        session = builder.getOrCreate()
        register(session)
        yield session
        gateway = session.sparkContext._gateway
        session.stop()
        if gateway is not None:
            gateway.shutdown()


@pytest.fixture(scope="session")
def spark_retrying(spark: "SparkSession") -> "SparkSession":
    """The same session: a process has one, and its tasks are tried three times."""
    return spark


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    """A broker for the whole run, with its name server; its name is BROKER. Take topics of your own: `topics`."""
    with LocalBroker(tmp_path_factory.mktemp("live") / BROKER, settings=SETTINGS) as running:
        yield running


@pytest.fixture
def fresh_broker(tmp_path: Path) -> Iterator[LocalBroker]:
    """A broker of this test, to be killed and started again."""
    (tmp_path / "fresh").mkdir()
    with LocalBroker(tmp_path / "fresh" / BROKER, settings=SETTINGS) as running:
        yield running


@pytest.fixture
def target(tmp_path: Path) -> Iterator[LocalBroker]:
    """A new broker with the name of the store `root`, so that queues keep their broker's name."""
    root = tmp_path / "target" / "s"
    root.parent.mkdir()
    with LocalBroker(root, settings=SETTINGS | {"brokerName": "s"}) as running:
        yield running


@pytest.fixture
def topics(broker: LocalBroker) -> Callable[..., str]:
    """`topics(queues=4)`: a new, unique topic at `broker`."""

    def make(queues: int = 4) -> str:
        name = f"topic-{os.getpid()}-{next(_numbers)}"
        with blocking.Admin(name_server=broker.name_server) as admin:
            admin.create_topic(name, queues)
        return name

    return make


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> KnownStore:
    """A store folder with known messages, closed cleanly. Shared: read it only, or take `store.copied(tmp_path)`."""
    root = tmp_path_factory.mktemp("known") / BROKER
    with LocalBroker(root, settings=SETTINGS) as running:
        messages = send_known(running.name_server)
        assert running.stop() == 0
    return KnownStore(root, messages)


@pytest.fixture(scope="session")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Packed:
    """The archive for executors: its compression takes seconds."""
    return pack(tmp_path_factory.mktemp("pack") / "firearrow.tar.gz")


@pytest.fixture(scope="session")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of several index files, not to be changed (see indexed.py)."""
    root = tmp_path_factory.mktemp("indexed") / "store"
    fill_indexed(root)
    return root


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what an index shows: nothing is read because it is next to what is wanted."""
    monkeypatch.setattr(index_plan, "GAP_MAX", 0)


@pytest.fixture(scope="session", params=["store-apache", "store-apache-crashed"])
def golden(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Golden:
    """Both of Apache's stores, one after the other. Shared: read only."""
    return unpacked(request.param, tmp_path_factory.mktemp("golden"))


@pytest.fixture(scope="session")
def golden_clean(tmp_path_factory: pytest.TempPathFactory) -> Golden:
    """The store that Apache closed. Shared: read only."""
    return unpacked("store-apache", tmp_path_factory.mktemp("golden-clean"))


@pytest.fixture
def golden_copy(tmp_path: Path) -> Golden:
    """A copy of the store that Apache closed, to be damaged."""
    return unpacked("store-apache", tmp_path)


@pytest.fixture
def apache(golden_copy: Golden) -> Path:
    """A copy of the store that Apache closed, to be damaged."""
    return golden_copy.root


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """COUNT messages of queue 0 and as many of queue 1, in turn: several segments and queue files."""
    with open_store(tmp_path / "store") as store:
        fill(store, COUNT)
    return tmp_path / "store"
