"""Apache's stores, with everything that Apache puts into one, move to us and back: nothing is lost or done twice."""

from pathlib import Path

import pytest

from tests.interop import round_trip, round_trip_4
from tests.interop.toolchain import java_class_path, need

pytestmark = pytest.mark.interop


def test_a_recorded_store_is_ours_for_a_while(tmp_path: Path) -> None:
    need(lambda: java_class_path("client5"))
    compared = round_trip.travel("store-apache", "stop", tmp_path, key_step=10)
    assert compared["members"] >= 15
    assert compared["messages"] > 600
    assert compared["keys"] > 100


@pytest.mark.long
def test_a_store_of_4_is_ours_for_a_while(tmp_path: Path) -> None:
    need(lambda: java_class_path("broker4"))
    assert round_trip_4.travel("stop", tmp_path)["records"] > 200
