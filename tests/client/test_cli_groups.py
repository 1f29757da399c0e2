"""`group seek` of a topic that the group does not read, `group diff` without members, and what a message's properties
are however it is read."""

import json
from collections.abc import Iterator

import pytest

from firearrow._native.wire.codes import RequestCode
from tests.support.broker_process import BrokerProcess
from tests.support.command_line import Ran, here
from tests.support.consumer_groups import commit, heartbeat, make_group
from tests.support.eventually import eventually
from tests.support.requests import send, topic_ext


@pytest.fixture(scope="module")
def name_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with (
        BrokerProcess(tmp_path_factory.mktemp("groups") / "store") as broker,
        broker.connect() as connection,
        broker.connect() as members,
    ):
        for topic in ("read", "unread"):
            assert connection.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(topic, 1)).code == 0
            assert send(connection, topic, b"x").code == 0
        for group in ("online", "offline", "fresh"):
            make_group(connection, group)
        heartbeat(members, "online", "read")
        commit(connection, "offline", "read", 0, 1)
        assert broker.name_server is not None
        yield "{}:{}".format(*broker.name_server)


def seek(name_server: str, group: str, topic: str, *words: str) -> Ran:
    return here("group", "seek", group, topic, "--to", "start", *words, name_server=name_server)


@pytest.mark.parametrize("words", [("--dry-run",), ("--yes",), ("--queue", "0", "--dry-run")])
def test_a_topic_that_members_do_not_read(name_server: str, words: tuple[str, ...]) -> None:
    answer = seek(name_server, "online", "unread", *words)
    assert (answer.code, answer.out) == (1, "")
    if "--queue" not in words:
        assert "members of group online do not read topic unread: they subscribe to read" in answer.err


def test_a_topic_that_a_group_without_members_has_not_read(name_server: str) -> None:
    answer = seek(name_server, "offline", "unread", "--dry-run")
    assert (answer.code, "group offline has read nothing of topic unread so far" in answer.err) == (0, True)
    assert "read nothing" not in seek(name_server, "offline", "read", "--dry-run").err
    assert "read nothing" in seek(name_server, "fresh", "read", "--dry-run").err


def test_what_does_not_exist(name_server: str) -> None:
    answer = seek(name_server, "nobody", "read", "--yes")
    assert (answer.code, "there is no group nobody" in answer.err) == (1, True)
    assert seek(name_server, "offline", "nowhere", "--yes").code == 1
    for verb in ("diff", "members"):
        answer = here("group", verb, "nobody", name_server=name_server)
        assert (answer.code, "there is no group nobody" in answer.err) == (1, True)


def test_there_is_nothing_to_compare_without_members(name_server: str) -> None:
    answer = here("group", "diff", "offline", name_server=name_server)
    assert (answer.code, answer.out) == (0, "")
    assert "group offline has no members to compare" in answer.err


def test_a_message_has_the_same_properties_however_it_is_read(name_server: str) -> None:
    words = ("--key", "k", "--tag", "t", "--property", "a=b", "--shard", "s")
    [sent] = here("send", "read", "body", *words, name_server=name_server).rows

    def one(*words: str) -> dict[str, object]:
        found = here(*words, name_server=name_server).lines
        [row] = [row for row in found if row["offsetMsgId"] == sent["offsetMsgId"]]
        return row

    eventually(lambda: here("message", "find", "read", "--key", "k", name_server=name_server).code == 0)
    tailed = one("tail", "read", "--from", "start", "-e")
    assert {"a", "KEYS", "TAGS", "UNIQ_KEY"} <= tailed["properties"].keys()  # type: ignore[attr-defined]
    assert not {"MIN_OFFSET", "MAX_OFFSET"} & tailed["properties"].keys()  # type: ignore[attr-defined]
    assert one("message", "find", "read", "--key", "k") == tailed
    assert one("message", "find", "read", "--from", "-1h") == tailed
    for message_id in (sent["msgId"], sent["offsetMsgId"]):
        assert one("message", "get", "read", message_id) == tailed
    text = here("tail", "read", "--from", "start", "-e", "--format", "{property:a}", name_server=name_server)
    assert "b" in text.out.splitlines()
    assert json.dumps(tailed)


def test_create(name_server: str) -> None:
    """As clients of gRPC need it, which create none."""
    made = here("group", "create", "made", "--orderly", "--retries", "3", name_server=name_server)
    assert (made.code, made.rows) == (0, [{"group": "made"}])
    again = here("group", "create", "made", name_server=name_server)
    assert (again.code, "group made exists" in again.err) == (1, True)
    rows = {row["group"]: row for row in here("group", "list", name_server=name_server).rows}
    assert (rows["made"]["consuming"], rows["made"]["retriesMax"]) == (True, 3)
    assert here("group", "show", "made", name_server=name_server).code == 0
