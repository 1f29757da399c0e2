"""Fixtures of the tests of replication."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.replication.scene import Scene


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path)
    try:
        yield scene
    finally:
        scene.close()
