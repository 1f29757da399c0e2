"""The sample broker.conf: its keys, their defaults, and a broker that starts with it without a warning."""

import itertools
import re
from pathlib import Path

import pytest

from firearrow.broker.base.options import Options, options_by_key, text_of
from tests.support.broker_process import BrokerProcess

SAMPLE = Path(__file__).resolve().parents[2] / "packaging" / "broker.conf"
KEYS = 20
KEY = re.compile(r"^#?([\w.]+)=(.*)$", re.M)
"""A comment of words has a space after its `#`, and a key has none."""
FROM_THE_HOST = "brokerName"


def test_every_key_is_an_option_with_its_default() -> None:
    shown, known = KEY.findall(SAMPLE.read_text("ascii")), options_by_key()
    assert len(dict(shown)) == len(shown) == KEYS
    defaults = {key: text_of(getattr(Options(), known[key].name)) for key, _ in shown}
    assert {key: value for key, value in shown if key != FROM_THE_HOST} == {
        key: value for key, value in defaults.items() if key != FROM_THE_HOST
    }


def test_every_key_is_explained() -> None:
    lines = SAMPLE.read_text("ascii").splitlines()
    for before, line in itertools.pairwise(lines):
        if KEY.match(line):
            assert before.startswith("# "), line
            assert not before.startswith("# ----"), line


@pytest.mark.parametrize("uncommented", [False, True])
def test_a_broker_starts_with_it_and_warns_of_open_ports_only(tmp_path: Path, uncommented: bool) -> None:
    text = SAMPLE.read_text("ascii")
    config = tmp_path / "broker.conf"
    config.write_text(KEY.sub(r"\1=\2", text) if uncommented else text)
    listen = ("--listen", "0.0.0.0:0", "--namesrv-listen", "0.0.0.0:0")
    with BrokerProcess(tmp_path / "store", "--config", str(config), *listen, way=()) as broker:
        assert broker.stop() == 0
        [line] = [line for line in broker.log.read_text().splitlines() if " WARNING " in line]
    assert "any client that reaches these ports" in line
