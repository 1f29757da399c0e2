"""Writes of an epoch file, to be recorded: appended, truncated, emptied. Called as a workload is."""

import random
import sys
from pathlib import Path

from firearrow.broker.replication.log.epoch_file import EpochFile
from tests.crash.marks import Marks


def write_epochs(root: Path, mark: Marks, draw: random.Random) -> None:
    file = EpochFile(root)
    for number in range(1, 16):
        last = file.entries[-1].start if file.entries else 0
        if number % 5 == 0:
            cut = 0 if number == 10 else draw.randrange(last)
            after = [entry for entry in file.entries if entry.start < cut]
            mark("saving", entries=after)
            file.truncate(cut)
        else:
            start = last + draw.randint(1, 1 << 40)
            mark("saving", entries=[*file.entries, (number, start)])
            file.append(number, start)
        mark("saved", entries=file.entries)


if __name__ == "__main__":
    write_epochs(Path(sys.argv[2]), Marks(), random.Random(int(sys.argv[3])))
