"""Writes of a pair's identity, to be recorded: made, founded, joined, copied. Called as a workload is."""

import random
import sys
from pathlib import Path

from firearrow.broker.replication.log.pair_identity import NO_ID, PairIdentity
from tests.crash.marks import Marks


def write_identity(root: Path, mark: Marks, draw: random.Random) -> None:
    """`saving`: what is to be kept of the two ids, "" where any new one may come; `saved`: what is kept."""

    def changed(pair: str, node: str) -> None:
        mark("saving", ids=[pair, node])

    def saved() -> None:
        mark("saved", ids=[identity.pair.hex(), identity.node.hex()])

    changed(NO_ID.hex(), "")
    identity = PairIdentity(root)
    saved()
    changed("", identity.node.hex())
    if draw.random() < 0.5:
        identity.found_pair()
    else:
        identity.join(draw.randbytes(16))
    saved()
    for _ in range(3):
        changed(identity.pair.hex(), "")
        assert identity.separate_from(identity.node)
        saved()
        identity = PairIdentity(root)


if __name__ == "__main__":
    write_identity(Path(sys.argv[2]), Marks(), random.Random(int(sys.argv[3])))
