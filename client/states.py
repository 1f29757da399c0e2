"""States of producers and consumers, by Java's names."""

from enum import Enum


class ServiceState(Enum):
    CREATE_JUST = "CREATE_JUST"
    START_FAILED = "START_FAILED"
    """Being started, or the last start failed: it may be tried again."""
    RUNNING = "RUNNING"
    SHUTDOWN_ALREADY = "SHUTDOWN_ALREADY"
    """For good."""
