"""What a run has once: its options, the order of its files, and the server that forks its commands."""

import importlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import Scheduling

from tests.support.examples import load_examples
from tests.support.fork_server import use_fork_server
from tests.support.scheduling import LoadSessionScheduling
from tests.support.ways import CHOSEN, skip_what_cannot_hold

TESTS = Path(__file__).parent
ROOT = TESTS.parent


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--against", choices=("firearrow", "apache"), default="firearrow", help="broker of the clients' tests"
    )
    parser.addoption("--long", action="store_true", help="also the tests marked `long`, and all examples")


def pytest_configure(config: pytest.Config) -> None:
    load_examples(long=config.getoption("--long"))
    state = tempfile.TemporaryDirectory(prefix="firearrow-state-")  # of commands, instead of that of the user
    config.add_cleanup(state.cleanup)
    os.environ["XDG_STATE_HOME"] = state.name


STATE = tempfile.TemporaryDirectory(prefix="firearrow-state-")
os.environ["XDG_STATE_HOME"] = STATE.name
"""Where `firearrow doctor` remembers brokers: not beside what the user of this machine has."""
use_fork_server()

ORDER = ("spark/session", "quotas", "client", "integration", "spark", "interop", "neighbours", "replication")
"""Of folders. First the longest units of work; then tests that mostly wait, beside them; then those that need the
CPU, as long as there are others to run beside them; all others are short."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling | None:
    return LoadSessionScheduling(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """In a new checkout pytest rewrites the assertions of all files, and each worker needs them all. Each imports other
    files first, and finds those that its neighbours have rewritten."""
    worker: dict[str, object] | None = getattr(session.config, "workerinput", None)
    if worker is None:
        return
    folders = [path for path in map(Path, session.config.args) if path.is_dir()]
    files = sorted(path for folder in folders for path in folder.resolve().rglob("test_*.py"))
    first = int(str(worker["workerid"]).removeprefix("gw"))
    for path in files[first :: int(str(worker["workercount"]))]:
        importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--long"):
        left_out = [item for item in items if item.get_closest_marker("long") is not None]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item.get_closest_marker("long") is None]

    def rank(item: pytest.Item) -> int:
        folder = f"{item.path.parent.relative_to(TESTS)}/"
        ranks = (rank for rank, name in enumerate(ORDER) if folder.startswith(f"{name}/"))
        return next(ranks, len(ORDER))

    items.sort(key=rank)
    skip_what_cannot_hold(CHOSEN, items)


ALONE = "FIREARROW_TEST_ALONE"


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Runs a test marked `alone` in a separate process: what it breaks affects no other thread (such as Spark's)."""
    if pyfuncitem.get_closest_marker("alone") is None or ALONE in os.environ:
        return None
    # the child gets none of our arguments: it has no `--against` and no workers
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", pyfuncitem.nodeid]
    # in a folder of its own, it does not search the numbered ones that other runs create and delete
    with tempfile.TemporaryDirectory() as folder:
        child = subprocess.run(
            [*command, f"--basetemp={folder}/pytest"],
            cwd=pyfuncitem.config.rootpath,
            env=os.environ | {ALONE: "1"},
            capture_output=True,
            text=True,
            check=False,
        )
    if child.returncode:
        pytest.fail(child.stdout + child.stderr, pytrace=False)
    return True
