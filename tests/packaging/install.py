"""What README's Install chapter names, run as it stands there and then tried: `python -m tests.packaging.install`.

Each line of the chapter runs in a copy of this tree with a fresh environment: the installs start a broker, and the
README's Python program sends a message and receives it; the packages go through the programs of this folder. Those of
`deb` and `image` need root and Debian's mmdebstrap and umoci. `--only WORD` runs the lines with that word.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.packaging.wheels import ROOT, check_broker, run
from tests.readme_examples import examples

IGNORED = shutil.ignore_patterns(
    ".git", ".venv", "build", "dist", "*.so", "*.egg-info", "__pycache__", ".*_cache"
)


def lines() -> list[str]:
    """The commands, without their comments."""
    block = "".join(examples("Install", "sh"))
    return [line.partition("#")[0].strip() for line in block.splitlines() if line.strip()]


def try_client_and_broker(tree: Path, bin_folder: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        command = [str(bin_folder / "firearrow"), "broker"]
        check_broker(command, bin_folder / "python", Path(folder), {"PYTHONPATH": ""})


def try_spark(tree: Path, bin_folder: Path) -> None:
    """The data source of the installed package is found by Spark's session."""
    program = (
        "from firearrow.spark_tools import session\n"
        "spark = session()\n"
        "print(spark.range(3).count())\n"
        "spark.stop()\n"
    )
    assert run(bin_folder / "python", "-c", program).strip().endswith("3")


def try_tls(tree: Path, bin_folder: Path) -> None:
    run(bin_folder / "firearrow", "tls", "init", "--dir", tree / "certificates")
    assert (tree / "certificates" / "authority.pem").exists(), sorted((tree / "certificates").iterdir())


def try_packages(tree: Path, bin_folder: Path) -> None:
    made = {path.suffix for path in (tree / "dist").iterdir()}
    assert {".whl", ".deb", ".tar"} <= made, made
    for program in ("wheels", "deb", "image"):
        subprocess.run([".venv/bin/python", "-m", f"tests.packaging.{program}"], cwd=tree, check=True)


CHECKS: dict[str, Callable[[Path, Path], None]] = {
    "pip install .": try_client_and_broker,
    "pip install '.[tls]'": try_tls,
    "pip install '.[spark]'": try_spark,
    "make wheels deb image": try_packages,
}
"""A test compares its keys with the chapter."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", metavar="WORD")
    given = parser.parse_args()
    for line in lines():
        if given.only not in line:
            continue
        with tempfile.TemporaryDirectory(prefix="firearrow-install-") as name:
            tree, environment = Path(name) / "tree", Path(name) / "environment"
            shutil.copytree(ROOT, tree, ignore=IGNORED)
            run(sys.executable, "-m", "venv", environment)
            path = f"{environment / 'bin'}{os.pathsep}{os.environ['PATH']}"
            print(f"$ {line}", flush=True)
            subprocess.run(
                line, shell=True, cwd=tree, env=os.environ | {"PATH": path, "PYTHONPATH": ""}, check=True
            )
            CHECKS[line](tree, environment / "bin")


if __name__ == "__main__":
    main()
