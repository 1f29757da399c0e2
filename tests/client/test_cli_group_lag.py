"""`group lag`: of groups that do not exist, that have consumed nothing, or that have; rows, notes and exit codes."""

from collections.abc import Iterator

import pytest

from firearrow._native.wire.codes import RequestCode
from tests.support.broker_process import BrokerProcess
from tests.support.command_line import Ran, here
from tests.support.consumer_groups import commit, heartbeat, make_group
from tests.support.requests import send, topic_ext

MESSAGES = 3


@pytest.fixture(scope="module")
def name_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with (
        BrokerProcess(tmp_path_factory.mktemp("lag") / "store") as broker,
        broker.connect() as connection,
        broker.connect() as members,
    ):
        for topic in ("T", "U", "V"):
            assert connection.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(topic, 2)).code == 0
            for _ in range(MESSAGES):
                assert send(connection, topic, b"x", 1).code == 0
        for group in ("Made", "Fresh", "Zero", "Reads", "Partly", "Broadcast"):
            make_group(connection, group)
        heartbeat(members, "Fresh", "T", "U")
        heartbeat(members, "Partly", "T", "U")
        heartbeat(members, "Broadcast", "T", model="BROADCASTING")
        commit(connection, "Zero", "T", 1, 0)
        commit(connection, "Reads", "T", 1, 2)
        commit(connection, "Partly", "T", 1, 2)
        assert broker.name_server is not None
        yield "{}:{}".format(*broker.name_server)


def lag(name_server: str, *words: str) -> Ran:
    return here("group", "lag", *words, name_server=name_server)


@pytest.mark.parametrize("words", [(), ("T",), ("--max", "5")])
def test_a_group_that_does_not_exist(name_server: str, words: tuple[str, ...]) -> None:
    answer = lag(name_server, "Nobody", *words)
    assert (answer.code, answer.out, "there is no group Nobody" in answer.err) == (1, "", True)


def test_a_group_that_was_made_and_never_used(name_server: str) -> None:
    answer = lag(name_server, "Made")
    assert (answer.code, answer.out) == (1, "")
    assert "group Made has consumed nothing, and has no members: name a topic" in answer.err
    of_topic = lag(name_server, "Made", "T")
    assert (of_topic.code, sum(row["lag"] for row in of_topic.lines)) == (1, MESSAGES)
    assert "has consumed nothing, so all messages of these queues wait for it" in of_topic.err


def test_a_group_whose_members_have_consumed_nothing(name_server: str) -> None:
    """What they subscribe to waits for them, since its first message was stored."""
    answer = lag(name_server, "Fresh")
    assert all((row["behindMs"] is not None) is bool(row["lag"]) for row in answer.lines)
    assert (answer.code, "has consumed nothing" in answer.err) == (1, True)
    assert {(row["topic"], row["queueId"]): row["lag"] for row in answer.lines} == {
        (topic, queue): MESSAGES * queue for topic in ("T", "U") for queue in (0, 1)
    }
    listed = here("group", "list", "--long", name_server=name_server).rows
    assert {row["group"]: row["lag"] for row in listed}["Fresh"] == 2 * MESSAGES
    [shown] = here("group", "show", "Fresh", name_server=name_server).rows
    assert shown["lag"] == 2 * MESSAGES


def test_groups_that_have_consumed(name_server: str) -> None:
    """An offset of 0 is one: the group stands at the first message."""
    for group, left in (("Zero", MESSAGES), ("Reads", 1)):
        answer = lag(name_server, group)
        assert (answer.code, answer.err) == (0, "")
        assert all((row["behindMs"] is not None) is bool(row["lag"]) for row in answer.lines)
        assert sum(row["lag"] for row in answer.lines) == left
    partly = lag(name_server, "Partly")
    assert (partly.code, sum(row["lag"] for row in partly.lines)) == (0, 1 + MESSAGES)
    assert lag(name_server, "Partly", "--max", "3").code == 1
    assert lag(name_server, "Partly", "--max", "4").code == 0


def test_a_topic_that_does_not_exist(name_server: str) -> None:
    answer = lag(name_server, "Reads", "Nowhere")
    assert (answer.code, "there is no topic Nowhere" in answer.err) == (1, True)
    unread = lag(name_server, "Fresh", "V")
    assert (unread.code, "do not subscribe to topic" in unread.err) == (1, True)


def test_a_group_whose_members_keep_their_offsets(name_server: str) -> None:
    answer = lag(name_server, "Broadcast")
    assert (answer.code, answer.out) == (1, "")
    assert "keep their offsets themselves: brokers do not know its lag" in answer.err
    listed = here("group", "list", "--long", name_server=name_server).rows
    [row] = [row for row in listed if row["group"] == "Broadcast"]
    assert (row["members"], row["model"], row["lag"]) == (1, "BROADCASTING", None)
