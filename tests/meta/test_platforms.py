"""On macOS and Windows only the client's modules are built: the list in pyproject.toml is what the client imports."""

import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LINUX_ONLY = (
    "firearrow.client.cli.doctor.store_files",
    "firearrow.client.cli.doctor.store_samples",
    "firearrow.client.pytest_plugin",
    "firearrow.client.store",
)
IMPORT_ALL = """
import importlib, pkgutil, sys
import firearrow.client
from django.conf import settings
import django
settings.configure(INSTALLED_APPS=["firearrow.client.integrations.django"])
django.setup()
for module in pkgutil.walk_packages(firearrow.client.__path__, "firearrow.client."):
    if module.name not in {left_out}:
        importlib.import_module(module.name)
print(*(name for name, module in sys.modules.items() if (getattr(module, "__file__", "") or "").endswith(".so")))
"""


def test_the_client_needs_the_modules_that_all_platforms_have() -> None:
    program = IMPORT_ALL.format(left_out=LINUX_ONLY)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = {name for name in done.stdout.split() if name.startswith("firearrow._native.")}
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["firearrow"]["client-modules"]
    assert {name.removeprefix("firearrow._native.").replace(".", "/") for name in loaded} == {
        *listed,
        "base/cython_shared",
    }
