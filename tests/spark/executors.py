"""SPARK_HOME, and an interpreter for executors that has numpy and pyarrow, and of FireArrow only what it is sent."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

NEEDED = ("numpy", "numpy.libs", "pyarrow")


def bare_python(folder: Path) -> Path:
    """The interpreter of an environment without this package."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True, timeout=60)
    python = folder / "bin" / "python"
    done = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    for name in NEEDED:
        installed = _folder("numpy").parent / name
        if installed.exists():
            (Path(done.stdout.strip()) / name).symlink_to(installed)
    return python


def spark_home(folder: Path) -> Path:
    """A SPARK_HOME whose files are those of the installed PySpark, so that a local cluster writes into a folder of the
    test.

    Archives of Python packages are folders here: from an archive, each process would compile what it imports.
    """
    installed = _folder("pyspark")
    folder.mkdir()
    for path in installed.iterdir():
        if path.name not in ("work", "python"):
            (folder / path.name).symlink_to(path)
    for archive in (installed / "python" / "lib").glob("*.zip"):
        package = archive.stem.partition("-")[0]
        unpacked = folder / "python" / "lib" / archive.name
        unpacked.mkdir(parents=True)
        (unpacked / package).symlink_to(_folder(package))
    return folder


def _folder(package: str) -> Path:
    spec = find_spec(package)
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return Path(next(iter(spec.submodule_search_locations)))
