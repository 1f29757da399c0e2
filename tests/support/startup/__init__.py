"""What tests change in a process when it starts (`sitecustomize.py`): how often its threads take turns, and faults.

FIREARROW_TEST_SWITCH_S, such as 1e-6, is the switch interval of every broker that the tests start: then its threads
take turns after a few bytecodes, and each walk over what another thread changes fails soon.
"""

import os
from dataclasses import dataclass
from pathlib import Path

SWITCH_S = "FIREARROW_TEST_SWITCH_S"
FAULT = "FIREARROW_TEST_FAULT"
QUICK_SWITCHES = {SWITCH_S: "1e-6"}


def startup_environment(changes: dict[str, str] | None = None) -> dict[str, str]:
    """The environment of a process that `changes` are for, and those of this one."""
    changes = changes or {}
    if not (changes or SWITCH_S in os.environ):
        return {}
    folder = str(Path(__file__).parent)
    return changes | {"PYTHONPATH": os.pathsep.join(filter(None, (folder, os.environ.get("PYTHONPATH"))))}


@dataclass(frozen=True, slots=True)
class ThreadFault:
    """`method`, as `package.module:Class.method`, raises the builtin exception `error` while the file `when` exists."""

    method: str
    error: str
    when: Path

    @property
    def environment(self) -> dict[str, str]:
        return startup_environment({FAULT: f"{self.method}={self.error}@{self.when}"})
