from firearrow._native.fastpath.fast_connection import FastHandler, RequestCounts
from firearrow._native.fastpath.long_polling import PullHoldService
from firearrow._native.fastpath.pull_message import Puller
from firearrow._native.fastpath.send_message import Sender

class RequestCounters:
    """Counts of requests by kind of client, of all connections together."""

    def all(self) -> list[RequestCounts]:
        """By language and version; -1 and -1: clients beyond the 64 kinds that have counts of their own."""

class CompleteDispatch(FastHandler):
    """Leaves all requests to the complete path; answers held pulls when a connection is not throttled any more."""

    def __init__(self, hold_service: PullHoldService) -> None: ...

class FastDispatch(FastHandler):
    """Plain sends and pulls without a Python object for each; `puller` None: sends only."""

    def __init__(self, sender: Sender, puller: Puller | None, counters: RequestCounters) -> None: ...
