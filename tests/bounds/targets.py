"""All targets by name."""

from tests.bounds.fuzz import Target
from tests.bounds.targets_store import STORE
from tests.bounds.targets_tables import TABLES
from tests.bounds.targets_wire import WIRE

TARGETS: dict[str, Target] = {target.name: target for target in (*WIRE, *TABLES, *STORE)}
