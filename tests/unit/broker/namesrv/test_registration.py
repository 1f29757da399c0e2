"""What a registration contains, and where it is sent: as Apache's, in parts, to the configured addresses."""

import pytest

from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base.errors import StartError
from firearrow.broker.services.registration import addresses
from firearrow.broker.tables import registration
from firearrow.broker.tables.registration import BrokerAnnouncement, BrokerIdentity, register_body
from firearrow.broker.tables.topics import TopicConfig, TopicSettings, TopicTable
from tests.golden import session
from tests.support.name_server_harness import NameServerHarness


def test_our_request_equals_apaches() -> None:
    recorded = next(frame for frame in session("start") if frame.line["name"] == "REGISTER_BROKER")
    assert recorded.raw is not None
    apache = RemotingCommand.decode(recorded.raw)
    theirs = register_body(apache.body, apache.version, False)
    topics = [
        TopicConfig(n, q.read_queues, q.write_queues, q.perm, sys_flag=q.topic_flag)
        for n, q in theirs.topics.items()
    ]
    ours = BrokerAnnouncement.of(
        BrokerIdentity("DefaultCluster", "broker-a", "127.0.0.2", 20911), theirs.version, topics, 6
    )
    (body,) = ours.bodies()
    ext = ours.ext("", body)
    assert ext.keys() == apache.ext.keys()
    different = {"bodyCrc32", "haServerAddr"}
    assert {key: ext[key] for key in ext.keys() - different} == {
        key: apache.ext[key] for key in ext.keys() - different
    }
    assert register_body(body, 513, False) == theirs


def test_many_topics_are_sent_in_parts_that_all_take_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "PART_TOPICS", 4)
    harness = NameServerHarness()
    topics = TopicTable(harness.clock, TopicSettings(cluster="C", broker="own"))
    for queues in (4, 8):
        topics.update_all([TopicConfig(f"N{n}", queues, queues) for n in range(10)])
        announcement = BrokerAnnouncement.of(
            BrokerIdentity("C", "own", "h", 1), topics.version, topics.configs(), 6
        )
        bodies = list(announcement.bodies())
        assert len(bodies) == -(-len(topics) // 4)
        for body in bodies:
            assert (
                harness.ask(
                    RemotingCommand(
                        RequestCode.REGISTER_BROKER, announcement.ext("", body), body, version=513
                    )
                ).code
                == 0
            )
        assert {harness.routes.topics[f"N{n}"]["own"].read_queues for n in range(10)} == {queues}
        assert harness.routes.version("C", "h:1") == topics.version


def test_addresses() -> None:
    assert addresses("a:1;b:2, [::1]:3;;a:1") == [("a", 1), ("b", 2), ("::1", 3)]
    assert addresses("") == []
    for text in ("a", ":1", "a:", "a:0", "a:65536", "a:x"):
        with pytest.raises(StartError, match="namesrvAddr"):
            addresses(text)
    assert len(addresses(";".join(f"a:{n + 1}" for n in range(16)))) == 16
    with pytest.raises(StartError, match="at most 16"):
        addresses(";".join(f"a:{n + 1}" for n in range(17)))


def test_the_name_server_of_this_process_is_left_out() -> None:
    named = "127.0.0.1:9876;127.0.0.2:9876;localhost:9876;10.0.0.1:9876;127.0.0.1:9877"
    hosts = [host for host, _ in addresses(named, ("127.0.0.1", 9876))]
    assert hosts == ["127.0.0.2", "10.0.0.1", "127.0.0.1"]
    assert [host for host, _ in addresses(named, ("0.0.0.0", 9876))] == ["10.0.0.1", "127.0.0.1"]
    assert len(addresses(named, ("127.0.0.1", 1))) == 5
