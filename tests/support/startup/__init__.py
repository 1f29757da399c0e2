"""What tests change in a process when it starts (`sitecustomize.py`): how often its threads take turns, faults, and
how long it waits where there is no option for it.

FIREARROW_TEST_SWITCH_S, such as 1e-6, is the switch interval of every broker that the tests start: then its threads
take turns after a few bytecodes, and each walk over what another thread changes fails soon.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

SWITCH_S = "FIREARROW_TEST_SWITCH_S"
FAULT = "FIREARROW_TEST_FAULT"
CONSTANTS = "FIREARROW_TEST_CONSTANTS"
QUICK_SWITCHES = {SWITCH_S: "1e-6"}


def startup_environment(changes: dict[str, str] | None = None) -> dict[str, str]:
    """The environment of a process that `changes` are for, and those of this one."""
    changes = changes or {}
    if not (changes or SWITCH_S in os.environ):
        return {}
    folder = str(Path(__file__).parent)
    return changes | {"PYTHONPATH": os.pathsep.join(filter(None, (folder, os.environ.get("PYTHONPATH"))))}


def constants(values: dict[str, float]) -> dict[str, str]:
    """The environment of a process whose module constants, as `package.module:NAME`, have these values."""
    return startup_environment({CONSTANTS: ";".join(f"{name}={value}" for name, value in values.items())})


def may_be_forked(changes: Mapping[str, str]) -> bool:
    """Whether a process with this changed environment needs nothing of Python's own start."""
    return not changes or (changes.keys() == {CONSTANTS, "PYTHONPATH"} and SWITCH_S not in os.environ)


QUICK_REVIVE = constants(
    {"firearrow.broker.pop.revive:SETTLE_AFTER_MS": 1100, "firearrow.broker.pop.revive:QUIET_MS": 900}
)
"""A check point is settled soon after its time, but not before the timer has delivered the acknowledgements that wait
in the same slot of 1 s."""


@dataclass(frozen=True, slots=True)
class ThreadFault:
    """`method`, as `package.module:Class.method`, raises the builtin exception `error` while the file `when` exists."""

    method: str
    error: str
    when: Path

    @property
    def environment(self) -> dict[str, str]:
        return startup_environment({FAULT: f"{self.method}={self.error}@{self.when}"})
