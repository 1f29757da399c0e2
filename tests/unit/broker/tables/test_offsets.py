"""ConsumerOffsets: committed offsets are found, resets take precedence, memory is bounded."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firearrow._native.protocol import fastjson
from firearrow.broker.tables import offsets as module
from firearrow.broker.tables.delay_offsets import DelayOffsets
from firearrow.broker.tables.offsets import QUEUE_ID_MAX, ConsumerOffsets, InvalidOffset
from tests.broker.tables.golden_config import config_file
from tests.support.clock import ManualClock

names = st.sampled_from(["A", "B", "%RETRY%A"])
commits = st.lists(st.tuples(names, names, st.integers(0, 3), st.integers(0, 2**63 - 1)), max_size=40)


def comparable(text: bytes) -> object:
    """Java's sets have no order."""
    value = fastjson.loads(text)
    return value | {
        "groupTopicMap": {group: sorted(topics) for group, topics in value["groupTopicMap"].items()}
    }


def test_the_golden_file_is_written_as_it_was_read() -> None:
    offsets = ConsumerOffsets(ManualClock(), is_lmq_enabled=True)
    offsets.load(config_file("lmqConsumerOffset.json"))
    assert comparable(offsets.to_json()) == comparable(config_file("lmqConsumerOffset.json"))
    assert offsets.query("CG_BROADCAST@broadcast", "GoldenSql", 2) == 2


def test_offsets_that_are_committed_again_need_no_new_file() -> None:
    changes: list[str] = []
    offsets = ConsumerOffsets(ManualClock(), changed=changes.extend)
    for offset in (5, 5, 5, 6, 6):
        offsets.commit("G", "T", 0, offset)
    assert (changes, offsets.commits) == (["G", "G"], 5)


def test_the_text_is_that_of_other_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Members in the table's order, all else as `pretty` writes it, however it is cut."""
    monkeypatch.setattr(module, "PIECE_OFFSETS", 3)
    offsets = ConsumerOffsets(ManualClock())
    for queue_id in (3, 0, 65_535, 1):
        offsets.commit('quoted"\\name', "Ü", queue_id, 2**63 - 1 - queue_id)
    for number in range(20):
        offsets.commit(f"G{number}", "T", number % 5, number)
        offsets.note_pull(f"G{number}", "T", 0, -1)
    pieces = list(offsets.pieces())
    assert len(pieces) > 20
    expected = fastjson.pretty(offsets.to_object())
    assert sorted(b"".join(pieces).replace(b",\n", b"\n").splitlines()) == sorted(
        expected.replace(b",\n", b"\n").splitlines()
    )
    assert fastjson.loads(offsets.to_json()) == fastjson.loads(expected)
    assert (
        fastjson.pretty(ConsumerOffsets(ManualClock()).to_object())
        == ConsumerOffsets(ManualClock()).to_json()
    )


def test_groups_of_lmqs_have_separate_offsets() -> None:
    offsets = ConsumerOffsets(ManualClock(), is_lmq_enabled=True)
    offsets.commit("%LMQ%g", "%LMQ%one", 0, 7)
    offsets.commit("G", "%LMQ%one", 0, 8)
    written = fastjson.loads(offsets.to_json())
    assert written["lmqOffsetTable"] == {"%LMQ%one@%LMQ%g": 7}
    assert written["offsetTable"] == {"%LMQ%one@G": {"0": 8}}
    again = ConsumerOffsets(ManualClock(), is_lmq_enabled=True)
    again.load(offsets.to_json())
    assert again.to_object() == offsets.to_object()
    assert (again.query("%LMQ%g", "%LMQ%one", 0), len(again)) == (7, 2)


@given(commits)
def test_a_file_restores_every_commit(made: list[tuple[str, str, int, int]]) -> None:
    offsets, again = ConsumerOffsets(ManualClock()), ConsumerOffsets(ManualClock())
    expected = {}
    for group, topic, queue_id, at in made:
        offsets.commit(group, topic, queue_id, at)
        expected[group, topic, queue_id] = at
    again.load(offsets.to_json())
    assert {key: again.query(*key) for key in expected} == expected
    assert len(again) == len(offsets) == len(expected)
    assert again.to_json() == offsets.to_json()
    for group, topic, _ in expected:
        assert topic in again.topics_of(group)
        assert group in again.groups_of(topic)


def test_offsets_go_backwards_too_and_unknown_ones_are_minus_one() -> None:
    offsets = ConsumerOffsets(ManualClock())
    offsets.commit("G", "T", 0, 10)
    offsets.commit("G", "T", 0, 3)
    assert (offsets.query("G", "T", 0), offsets.query("G", "T", 1), offsets.query("H", "T", 0)) == (3, -1, -1)
    assert offsets.of("G", "T") == {0: 3}
    assert offsets.of("G", "U") is None


def test_the_version_moves_once_in_a_step() -> None:
    offsets = ConsumerOffsets(ManualClock(), version_step=3)
    for at in range(7):
        offsets.commit("G", "T", 0, at)
    assert offsets.version.counter == 2


def test_queue_ids_and_queues_are_bounded() -> None:
    offsets = ConsumerOffsets(ManualClock(), queues_max=2)
    for wrong in (-1, QUEUE_ID_MAX + 1):
        with pytest.raises(InvalidOffset, match="queueId must be 0 to 65535"):
            offsets.commit("G", "T", wrong, 0)
    offsets.commit("G", "T", QUEUE_ID_MAX, 1)
    offsets.commit("G", "T", 1, 1)
    with pytest.raises(InvalidOffset, match="at most 2"):
        offsets.commit("G", "T", 2, 1)
    with pytest.raises(InvalidOffset):
        offsets.reset("G", "U", 0, 1)
    offsets.commit("G", "T", 1, 2)
    offsets.remove_group("G")
    offsets.commit("H", "T", 0, 1)
    assert (len(offsets), offsets.topics_of("G"), offsets.groups_of("T")) == (1, [], ["H"])


def test_a_pending_reset_takes_precedence_and_is_returned_once() -> None:
    offsets = ConsumerOffsets(ManualClock())
    offsets.commit("G", "T", 0, 10)
    offsets.reset("G", "T", 0, 4)
    assert offsets.has_reset("G", "T", 0)
    offsets.commit("G", "T", 0, 11)
    assert offsets.query("G", "T", 0) == 4
    assert offsets.take_reset("G", "T", 0) == 4
    assert offsets.take_reset("G", "T", 0) is None
    assert offsets.query("G", "T", 0) == 11


def test_a_removed_topic_removes_all_its_offsets() -> None:
    offsets = ConsumerOffsets(ManualClock())
    for group in ("G", "H"):
        offsets.commit(group, "T", 0, 1)
        offsets.reset(group, "T", 0, 1)
        offsets.note_pull(group, "T", 0, 1)
    offsets.commit("G", "U", 0, 7)
    offsets.remove_topic("T")
    assert offsets.query("G", "T", 0) == offsets.query("H", "T", 0) == -1
    assert offsets.pulled("G", "T", 0) == -1
    assert not offsets.has_reset("H", "T", 0)
    assert (offsets.query("G", "U", 0), offsets.topics_of("G"), len(offsets)) == (7, ["U"], 1)


def test_a_clone_has_the_offsets_of_its_source() -> None:
    offsets = ConsumerOffsets(ManualClock())
    offsets.commit("G", "T", 0, 5)
    offsets.commit("G", "T", 3, 6)
    offsets.clone("G", "H", "T")
    offsets.commit("G", "T", 0, 9)
    assert offsets.of("H", "T") == {0: 5, 3: 6}


def test_pull_offsets_are_stored_within_limits() -> None:
    offsets = ConsumerOffsets(ManualClock(), queues_max=1)
    offsets.note_pull("G", "T", -1, 5)
    offsets.note_pull("G", "T", 0, 5)
    offsets.note_pull("G", "T", 1, 5)
    offsets.note_pull("G", "T", 0, 6)
    assert [offsets.pulled("G", "T", n) for n in (-1, 0, 1)] == [-1, 6, -1]


@pytest.mark.parametrize(
    "table", [[], {"T@G": 1}, {"TG": {"0": 1}}, {"T@G": {"x": 1}}, {"T@G": {"70000": 1}}, {"T@G": {"0": "x"}}]
)
def test_a_wrong_file_is_refused_and_changes_nothing(table: object) -> None:
    offsets = ConsumerOffsets(ManualClock())
    offsets.commit("G", "T", 0, 1)
    before = offsets.to_json()
    with pytest.raises(ValueError, match=r"."):
        offsets.load(json.dumps({"offsetTable": table}).encode())
    assert offsets.to_json() == before


def test_after_a_power_cut_no_offset_is_past_the_end_of_its_queue() -> None:
    on_commit: list[tuple[str, int, int, int]] = []
    offsets = ConsumerOffsets(ManualClock(), on_commit=lambda *entry: on_commit.append(entry))
    for queue_id, queue_offset in enumerate((4, 5, 6)):
        offsets.commit("G", "T", queue_id, queue_offset)
    offsets.commit("G", "Gone", 0, 7)
    on_commit.clear()
    ends = {("T", 0): 5, ("T", 1): 5, ("T", 2): 5}
    assert offsets.bound(lambda *queue: ends.get(queue, 0)) == 2
    assert offsets.of("G", "T") == {0: 4, 1: 5, 2: 5}
    assert offsets.of("G", "Gone") == {0: 0}
    assert on_commit == [("T@G", 2, 5, 0), ("Gone@G", 0, 0, 0)]
    assert offsets.bound(lambda *queue: ends.get(queue, 0)) == 0


def test_no_offset_goes_back_when_a_slave_acted() -> None:
    noted: list[tuple[str, int, int, int]] = []
    offsets = ConsumerOffsets(ManualClock(), on_commit=lambda *entry: noted.append(entry))
    offsets.commit("G", "A", 0, 7)
    offsets.commit("G", "A", 1, 7)
    version, before = offsets.version, len(noted)
    there = {"offsetTable": {"A@G": {"0": 9, "1": 3}, "B@H": {"2": 0}}, "pullOffsetTable": {"A@G": {"0": 9}}}
    assert offsets.take_over(there) == 2
    assert (offsets.of("G", "A"), offsets.of("H", "B")) == ({0: 9, 1: 7}, {2: 0})
    assert noted[before:] == [("A@G", 0, 9, 0), ("B@H", 2, 0, 0)]
    assert offsets.version.counter == version.counter + 1
    assert offsets.take_over(there) == 0
    with pytest.raises(ValueError, match="without @"):
        offsets.take_over({"offsetTable": {"A": {"0": 9}}})


def test_no_delay_level_goes_back_when_a_slave_acted() -> None:
    delays = DelayOffsets(ManualClock())
    delays.load(b'{"offsetTable":{1:5,2:5}}')
    assert delays.take_over(b'{"dataVersion":{"counter":9},"offsetTable":{1:4,2:6,3:1}}') == 2
    assert [delays.get(level) for level in (1, 2, 3)] == [5, 6, 1]
    with pytest.raises(ValueError, match="level 0"):
        delays.take_over(b'{"offsetTable":{0:4}}')
