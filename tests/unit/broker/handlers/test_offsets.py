"""14, 15, 43: a group's offset is found, a new group starts where Apache lets it, and only valid commits are taken."""

import pytest

from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.tables.topics import TopicConfig
from tests.support.handler_harness import HandlerHarness


@pytest.fixture
def harness() -> HandlerHarness:
    harness = HandlerHarness()
    harness.topics.update(TopicConfig("T", 4, 4))
    harness.groups.find("G")
    return harness


def query(harness: HandlerHarness, **more: object) -> RemotingCommand:
    return harness.ask(14, {"consumerGroup": "G", "topic": "T", "queueId": 0} | more)


def commit(harness: HandlerHarness, **more: object) -> RemotingCommand:
    return harness.ask(15, {"consumerGroup": "G", "topic": "T", "queueId": 0, "commitOffset": 5} | more)


def test_what_was_committed_is_found(harness: HandlerHarness) -> None:
    answer = commit(harness)
    assert (answer.code, answer.remark, answer.ext) == (0, None, {})
    assert query(harness).ext == {"offset": "5"}
    commit(harness, commitOffset=2)
    assert query(harness, setZeroIfNotFound="false").ext == {"offset": "2"}


@pytest.mark.parametrize(
    ("times", "begins", "near", "code"),
    [([1], 0, True, 0), ([], 0, True, 22), ([1, 2], 1, True, 22), ([1], 0, False, 22)],
)
def test_a_new_group_starts_at_zero_only_while_the_first_message_is_recent(
    harness: HandlerHarness, times: list[int], begins: int, near: bool, code: int
) -> None:
    harness.fake.times["T", 0] = times
    harness.fake.begins["T", 0] = begins
    harness.fake.near = near
    answer = query(harness)
    assert answer.code == code
    if code:
        assert answer.remark == "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
    else:
        assert answer.ext == {"offset": "0"}


def test_a_new_group_does_not_start_at_a_deleted_message(harness: HandlerHarness) -> None:
    harness.fake.times["T", 0] = [1]
    assert query(harness).code == 0
    harness.fake.min_physical = 5000
    assert query(harness).code == 22


def test_zero_is_not_returned_if_the_request_excludes_it(harness: HandlerHarness) -> None:
    harness.fake.times["T", 0] = [1]
    answer = query(harness, setZeroIfNotFound="false")
    assert (answer.code, answer.remark) == (22, "Not found, do not set to zero, maybe this group boot first")


@pytest.mark.parametrize(
    ("more", "code", "remark"),
    [
        ({"consumerGroup": "H"}, 26, "Group H not exist!"),
        ({"topic": "U"}, 17, "Topic U not exist!"),
        ({"queueId": -1}, 29, "queueId must be 0 to 65535, not -1"),
        ({"queueId": 65536}, 29, "queueId must be 0 to 65535, not 65536"),
        ({"commitOffset": -1}, 29, "commitOffset must not be negative: -1"),
    ],
)
def test_wrong_commits_are_refused(
    harness: HandlerHarness, more: dict[str, object], code: int, remark: str
) -> None:
    answer = commit(harness, **more)
    assert (answer.code, answer.remark) == (code, remark)
    assert len(harness.offsets) == 0
    assert "H" not in harness.groups


@pytest.mark.parametrize(
    ("field", "remark"),
    [("queueId", "QueueId is null, topic is T"), ("commitOffset", "Offset is null, topic is T")],
)
def test_missing_fields_of_a_commit_are_named(harness: HandlerHarness, field: str, remark: str) -> None:
    ext: dict[str, object] = {"consumerGroup": "G", "topic": "T", "queueId": 0, "commitOffset": 5}
    del ext[field]
    answer = harness.ask(15, ext)
    assert (answer.code, answer.remark) == (29, remark)


def test_commits_are_ignored_until_a_reset_is_fetched(harness: HandlerHarness) -> None:
    commit(harness)
    harness.offsets.reset("G", "T", 0, 1)
    answer = commit(harness, commitOffset=9)
    assert (answer.code, answer.remark) == (0, "Offset has been previously reset")
    assert query(harness).ext == {"offset": "1"}
    harness.offsets.take_reset("G", "T", 0)
    assert query(harness).ext == {"offset": "1"}


def test_all_offsets_are_returned_in_javas_form(harness: HandlerHarness) -> None:
    commit(harness, queueId=3)
    assert harness.ask(43).body == (
        b'{"dataVersion":{"counter":0,"stateVersion":0,"timestamp":1700000000000},"groupTopicMap":{"G":["T"]},'
        b'"offsetTable":{"T@G":{3:5}},"pullOffsetTable":{}}'
    )


def test_a_slave_of_apache_can_read_all_offsets(harness: HandlerHarness) -> None:
    """It skips `pullOffsetTable`, and can skip standard JSON only (Apache's issue 10284)."""
    commit(harness, queueId=3)
    harness.offsets.note_pull("G", "T", 3, 7)
    assert harness.ask(43).body.endswith(b'"offsetTable":{"T@G":{3:5}},"pullOffsetTable":{"T@G":{"3":7}}}')
