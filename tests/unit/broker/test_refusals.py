"""RefusalLog: equal refusals are counted together, and everything is bounded."""

from firearrow._native.wire.codes import ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base.peer import Peer
from firearrow.broker.net.dispatch import Dispatch
from firearrow.broker.net.refusals import ENTRIES_MAX, NAME_CHARS_MAX, OTHER, RefusalLog
from tests.support.clock import ManualClock
from tests.support.peers import RecordedPeer


def peer(port: int) -> RecordedPeer:
    made = RecordedPeer()
    made.remote = ("10.0.0.1", port)
    return made


def test_equal_ones_of_an_address_are_one_entry() -> None:
    refusals = RefusalLog(ManualClock())
    one, other = peer(1), peer(2)
    for number in range(3):
        refusals.note(RemotingCommand(11, {"topic": f"T{number}"}), one, ResponseCode.TOPIC_NOT_EXIST)
    refusals.note(RemotingCommand(310, {"b": "U", "a": "P"}), other, ResponseCode.TOPIC_NOT_EXIST)
    refusals.note(RemotingCommand(310), one, ResponseCode.SYSTEM_BUSY)
    found = [(each.address, each.reason, each.topic, each.group, each.count) for each in refusals.last(9)]
    assert found == [
        ("10.0.0.1:1", "SYSTEM_BUSY", "", "", 1),
        ("10.0.0.1:2", "TOPIC_NOT_EXIST", "U", "P", 1),
        ("10.0.0.1:1", "TOPIC_NOT_EXIST", "T2", "", 3),
    ]
    assert refusals.by_reason == {"TOPIC_NOT_EXIST": 4, "SYSTEM_BUSY": 1}
    assert len(refusals.last(1)) == 1


def test_entries_and_names_are_bounded() -> None:
    refusals = RefusalLog(ManualClock())
    for port in range(ENTRIES_MAX + 1):
        refusals.note(RemotingCommand(11, {"topic": "t" * 40_000}), peer(port), ResponseCode.SYSTEM_ERROR)
    found = refusals.last(10_000)
    assert len(found) == ENTRIES_MAX
    assert found[0].address == f"10.0.0.1:{ENTRIES_MAX}"
    assert found[-1].address == "10.0.0.1:1"
    assert len(found[0].topic) == NAME_CHARS_MAX


def test_codes_without_a_name_are_one_reason() -> None:
    refusals = RefusalLog(ManualClock())
    for code in (31_000, 31_001, -1):
        refusals.note(RemotingCommand(1), peer(1), code)
    assert refusals.by_reason == {OTHER: 3}


def test_the_dispatcher_notes_refusals_only() -> None:
    refusals, asking = RefusalLog(ManualClock()), peer(7)
    dispatch = Dispatch([{7: lambda request, peer: request.answer(1, "an answer")}], refusals)
    dispatch(RemotingCommand(7), asking)
    dispatch(RemotingCommand(8, {"topic": "T"}), asking)
    assert [(each.code, each.reason) for each in refusals.last(9)] == [(8, "REQUEST_CODE_NOT_SUPPORTED")]
    assert len(asking.replies) == 2


def test_requests_without_a_field_are_refusals() -> None:
    def handler(request: RemotingCommand, peer: Peer) -> RemotingCommand:
        return request.answer(0, request.text("missing"))

    refusals, asking = RefusalLog(ManualClock()), peer(7)
    Dispatch([{7: handler}], refusals)(RemotingCommand(7, {"topic": "T"}), asking)
    assert [(each.code, each.reason, each.topic) for each in refusals.last(9)] == [(7, "SYSTEM_ERROR", "T")]
    [answer] = asking.replies
    assert (answer.code, "missing" in (answer.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)
