"""How full a disk is, as Apache computes it, and what happens at which ratio."""

import os
from pathlib import Path
from typing import NamedTuple

import pytest

from firearrow.broker.base.disk_space import DiskUse, Pressure, measured, pressure, used_share
from firearrow.broker.base.options import Options


class About(NamedTuple):
    """The system's values of a file system."""

    f_blocks: int
    f_bfree: int
    f_bavail: int


@pytest.mark.parametrize(
    ("about", "share"),
    [
        (About(1000, 100, 50), 0.95),
        (About(1000, 500, 500), 0.50),
        (About(1000, 499, 499), 0.51),
        (About(1000, 1000, 1000), 0.0),
        (About(1000, 0, 0), 1.0),
        (About(0, 0, 0), 0.0),
    ],
)
def test_a_ratio_is_of_usable_space_and_rounded_up(
    about: About, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "statvfs", lambda folder: about)
    assert used_share("/") == share


def test_a_missing_folder_is_reported(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        measured(str(tmp_path / "commitlog"), str(tmp_path))


@pytest.mark.parametrize(
    ("log", "queues", "level"),
    [
        (0.75, 0.75, Pressure.NONE),
        (0.76, 0.1, Pressure.RECLAIM),
        (0.85, 0.1, Pressure.RECLAIM),
        (0.1, 0.86, Pressure.FORCE),
        (0.90, 0.90, Pressure.FORCE),
        (0.91, 0.1, Pressure.FULL),
        (0.1, 1.0, Pressure.FULL),
    ],
)
def test_the_fuller_disk_counts(log: float, queues: float, level: Pressure) -> None:
    assert pressure(DiskUse(log, queues, queues), Options()) is level
