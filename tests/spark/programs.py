"""Programs that start Spark, as processes of their own."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

WITHIN_S = 280
"""Below the time-out of a test that starts one."""


def run_program(
    command: Sequence[str | Path], environment: Mapping[str, str], folder: Path, within_s: float = WITHIN_S
) -> subprocess.CompletedProcess[str]:
    """Run it to its end in that folder. `environment` is added to this process's. TimeoutExpired."""
    return subprocess.run(
        command,
        env=os.environ | environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=within_s,
        check=False,
    )
