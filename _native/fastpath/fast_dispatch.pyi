from firearrow._native.fastpath.fast_connection import FastHandler
from firearrow._native.fastpath.pull_message import Puller
from firearrow._native.fastpath.send_message import Sender

class FastDispatch(FastHandler):
    """Plain sends and pulls without a Python object for each; `puller` None: sends only."""

    def __init__(self, sender: Sender, puller: Puller | None) -> None: ...
