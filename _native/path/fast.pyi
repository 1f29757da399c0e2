from firearrow._native.path.lane import FastHandler
from firearrow._native.path.pull import Puller
from firearrow._native.path.send import Sender

class FastDispatch(FastHandler):
    """Plain sends and pulls without a Python object for each; `puller` None: sends only."""

    def __init__(self, sender: Sender, puller: Puller | None) -> None: ...
