"""Run kombu's and Celery's own integration tests: `python -m tests.integrations.kombu.upstream [FOLDER] [-- WORDS]`.

FOLDER holds the sources `kombu-VERSION` and `celery-VERSION` of the versions that are installed; without it, pip gets
them. Only their tests are used, the packages are those installed. WORDS go to pytest, as `-k inspect`. The end is 1 if
a test fails; those left out are listed with the reason.
"""

import os
import subprocess
import sys
import tarfile
import tempfile
from importlib.metadata import version
from pathlib import Path

from tests.interop.peers import LIFE, FireArrow

ROOT = Path(__file__).resolve().parents[4]
PACKAGES = ("kombu", "celery")
SETTINGS = LIFE | {
    "messageDelayLevel": "1s 1s 2s",
    "timerPrecisionMs": "100",
    "autoCreateTopicEnable": "false",
}
PLUGIN = f"{__package__}.left_out"
CELERY = ("tasks", "canvas", "group_chains", "inspect", "worker")
"""Its test modules that need a broker, and no backend of their own. Each runs in a process of its own: a worker is in
it, and several change what all workers of a process share."""
CONFIGURATION = "[pytest]\npython_classes = test_* Test*\nmarkers =\n  flaky\n  timeout\n  amqp\n  env\n"
REGISTER = "import firearrow.client.integrations.kombu\n"
"""sitecustomize.py of all processes that the tests start."""


def sources(folder: Path) -> dict[str, Path]:
    """The source folder of each package; what is missing comes from the registry."""
    found = {}
    for package in PACKAGES:
        name = f"{package}-{version(package)}"
        if not (folder / name / "t").is_dir():
            words = ("download", "-q", "--no-binary", ":all:", "--no-deps", "--no-build-isolation")
            wanted = f"{package}=={version(package)}"
            subprocess.run([sys.executable, "-m", "pip", *words, wanted, "-d", folder], check=True)
            with tarfile.open(folder / f"{name}.tar.gz") as archive:
                archive.extractall(folder, filter="data")
        found[package] = folder / name
    return found


def run(package: str, source: Path, broker: str, cases: str, words: list[str]) -> int:
    """Run a module of tests in a folder where `t` is the package of the source's tests."""
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        (folder / "t").symlink_to(source.resolve() / "t")
        (folder / "pytest.ini").write_text(CONFIGURATION)
        (folder / "sitecustomize.py").write_text(REGISTER)
        environment = os.environ | {
            "TEST_BROKER": broker,
            "TEST_BACKEND": os.environ.get("TEST_BACKEND", f"db+sqlite:///{folder}/results.db"),
            "WORKER_LOGLEVEL": "INFO",
            "PYTHONPATH": f"{folder}:{ROOT}:{os.environ.get('PYTHONPATH', '')}",
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        plugins = ("-p", PLUGIN, *(("-p", "celery.contrib.pytest") if package == "celery" else ()))
        command = [sys.executable, "-m", "pytest", "-q", "-rsx", "--timeout", "180", *plugins]
        options = ("-p", "no:cacheprovider", "-c", folder / "pytest.ini", "--rootdir", folder)
        print(f"== {package}: {Path(cases).stem}", flush=True)
        done = subprocess.run([*command, *options, *words, cases], cwd=folder, env=environment, check=False)
    return done.returncode


def main(words: list[str]) -> int:
    given = words[: words.index("--")] if "--" in words else words
    codes = set()
    with tempfile.TemporaryDirectory() as text:
        found = sources(Path(given[0]) if given else Path(text))
        with FireArrow(Path(text) / "store", SETTINGS) as broker:
            url = f"rocketmq://{broker.name_server}"
            cases = str(Path(__file__).with_name("kombu_cases.py"))
            rest = words[len(given) + 1 :]
            codes.add(run("kombu", found["kombu"], f"{url}/kombu", cases, rest))
            for name in CELERY:
                module = f"t/integration/test_{name}.py"
                codes.add(run("celery", found["celery"], f"{url}/{name}", module, rest))
    return int(not codes <= {0, 5})  # 5: no test was selected


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
