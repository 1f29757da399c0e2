"""Everything that clients said to a live Apache RocketMQ is said to our process; its answers agree, but for the names
in PROTOCOL.md."""

import re
from pathlib import Path

from tests.wire_golden.conversation import events
from tests.wire_golden.differences import RULES
from tests.wire_golden.replay import replayed

PROTOCOL = Path(__file__).resolve().parents[2] / "PROTOCOL.md"
COMPARED, EQUAL = 2458, 1130
"""All answers and requests of Apache in the recording; as many as must agree in every value."""


def test_every_difference_has_a_name() -> None:
    unnamed = replayed().unnamed()
    assert not unnamed, "\n".join(map(str, unnamed[:40]))


def test_every_name_still_occurs() -> None:
    assert set(RULES) == set(replayed().counts())


def test_every_frame_is_compared_and_most_are_equal() -> None:
    replay = replayed()
    counts = sorted(replay.counts().items(), key=lambda one: -one[1])
    print(f"\n{len(replay.exchanges)} frames compared in {replay.seconds:.0f} s, {replay.equal} equal")
    for name, count in counts:
        print(f"{count:6} frames with: {name}")
    from_server = sum(not event.to_server for event in events())
    assert len(replay.exchanges) == from_server == COMPARED
    assert replay.equal >= EQUAL


def test_the_broker_says_that_it_is_no_java_in_every_frame() -> None:
    said = {one.ours.language for one, _ in replayed().exchanges if one.ours is not None}
    assert said == {3}


def test_protocol_lists_the_same_names() -> None:
    section = PROTOCOL.read_text("utf-8").split("\n## Named differences")[1].split("\n## ")[0]
    assert re.findall(r"^\| \*\*(.+?)\*\* \|", section, re.MULTILINE) == list(RULES)
