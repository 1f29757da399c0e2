"""Apache's stores, with everything that Apache puts into one, come to us and go back: nothing is lost or done twice."""

from pathlib import Path

import pytest

from tests.interop.round_trip import travel
from tests.interop.workshop import java_class_path, need

pytestmark = pytest.mark.interop


@pytest.mark.parametrize(("store", "end"), [("store-apache", "stop"), ("store-apache-crashed", "kill")])
def test_apaches_store_is_ours_for_a_while(store: str, end: str, tmp_path: Path) -> None:
    need(lambda: java_class_path("client5"))
    compared = travel(store, end, tmp_path, key_step=10)
    assert compared["members"] >= 10
    assert compared["messages"] > 600
    assert compared["keys"] > 100
