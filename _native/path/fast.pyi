from firearrow._native.path.lane import Lane
from firearrow._native.path.send import Sender

class FastLane(Lane):
    """Plain sends without a Python object for each."""

    def __init__(self, sender: Sender) -> None: ...
