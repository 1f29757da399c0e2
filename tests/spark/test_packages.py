"""The error, in a separate process, if a package that Spark needs is missing or too old."""

import subprocess
import sys
from pathlib import Path

import pytest

CALLS = ("session()", "register(None)", "scan(None, path='/store')")
MISSING = "import sys; sys.modules[{package!r}] = None\n"
"""Makes imports of it fail as if it were not installed."""


def last_error(prelude: str, call: str) -> str:
    """The last line of a failing program's output."""
    program = f"{prelude}\nfrom firearrow import spark_tools\nspark_tools.{call}\n"
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 1, ran.stdout
    return ran.stderr.splitlines()[-1]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("package", ["pyspark", "pyarrow"])
def test_a_missing_package_is_one_sentence(package: str, call: str) -> None:
    assert last_error(MISSING.format(package=package), call) == (
        f"firearrow.spark_tools.submit.CannotSubmit: {package} cannot be imported: pip install 'firearrow[spark]'"
    )


@pytest.mark.parametrize("call", CALLS)
def test_a_pyspark_too_old_is_one_sentence(tmp_path: Path, call: str) -> None:
    package = tmp_path / "pyspark"
    package.mkdir()
    (package / "__init__.py").write_text("raise AssertionError('imported')\n")
    (package / "version.py").write_text("__version__: str = '4.1.3'\n")
    assert last_error(f"import sys; sys.path.insert(0, {str(tmp_path)!r})", call) == (
        f"firearrow.spark_tools.submit.CannotSubmit: PySpark 4.1.3 in {package} is too old, 4.2 or later is required: "
        "pip install 'firearrow[spark]'"
    )
