"""All targets by name."""

from tests.hostile.fuzz import Target
from tests.hostile.targets_access import ACCESS
from tests.hostile.targets_http2 import HTTP2
from tests.hostile.targets_replication import REPLICATION
from tests.hostile.targets_requests import REQUESTS
from tests.hostile.targets_store import STORE
from tests.hostile.targets_tables import TABLES
from tests.hostile.targets_tls import TLS
from tests.hostile.targets_wire import WIRE

TARGETS: dict[str, Target] = {
    target.name: target for target in (*WIRE, *TLS, *HTTP2, *TABLES, *STORE, *ACCESS, *REPLICATION, *REQUESTS)
}
FROM_OUTSIDE = [target.name for target in (*WIRE, *TLS, *HTTP2, *ACCESS, *REPLICATION, *REQUESTS)]
"""Parsers of what peers send, not of a store's files."""
