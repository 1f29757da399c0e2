"""An interpreter for executors that has numpy and pyarrow, and of FireArrow only what it is sent."""

import subprocess
import sys
from pathlib import Path

from tests.spark.spark_home import package_folder

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
        installed = package_folder("numpy").parent / name
        if installed.exists():
            (Path(done.stdout.strip()) / name).symlink_to(installed)
    return python
