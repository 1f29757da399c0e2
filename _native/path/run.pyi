from firearrow._native.path.parked import Waiting

class Run(Waiting):
    """Answers of one turn that wait for its write; the turn holds it as one of what is parked."""
