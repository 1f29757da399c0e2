"""The running broker held to its promises: real processes, real sockets, every test with a store folder of its own."""

from tests.process.connection import Connection
from tests.process.running import Broker

__all__ = ["Broker", "Connection"]
