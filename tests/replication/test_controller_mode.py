"""Brokers of ours under a controller: who is the master, what is refused until then, failover, truncation, learners."""

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow.broker.replication.controller.frames import (
    Greeting,
    acknowledgement,
    greeting_frame,
    welcome_frame,
)
from firearrow.broker.replication.log.epoch_file import Epoch
from tests.replication.controllers import SEGMENT, broker_under, sent, takes_writes
from tests.replication.one_controller import OneController
from tests.replication.pairs import digests, end_of, ha_client, paused
from tests.replication.promoted_pair import is_master
from tests.replication.scripted_master import ScriptedMaster
from tests.support.broker_process import BrokerProcess
from tests.support.client_socket import ClientSocket
from tests.support.command_line import here
from tests.support.eventually import eventually
from tests.support.requests import read_queue, send, send_ext

NAME = "pair"


class Under:
    """Brokers of one name under a controller."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.controller = OneController()
        self.started: list[BrokerProcess] = []

    def start(self, store: str, port: int = 0, **settings: str) -> BrokerProcess:
        address = self.controller.address
        broker = broker_under(self.folder / store, port, brokerName=NAME, controllerAddr=address, **settings)
        self.started.append(broker)
        return broker

    def pair(self, **settings: str) -> tuple[BrokerProcess, BrokerProcess]:
        """A master, and a slave in its set."""
        master = self.start("a", **settings)
        await_writes(master)
        slave = self.start("b", **settings)
        self.await_set({1, 2})
        return master, slave

    def await_set(self, members: set[int]) -> None:
        eventually(lambda: self.controller.set == members, what=f"the set {members}")

    def equal(self, *brokers: BrokerProcess) -> int:
        with brokers[0].connect() as connection:
            end = end_of(connection)
        for broker in brokers:
            await_end(broker, end)
        found = [digests(broker.store, end) for broker in brokers]
        assert all(each == found[0] for each in found)
        return end

    def close(self) -> None:
        for broker in self.started:
            broker.kill()
        self.controller.close()


def bodies(connection: ClientSocket, queues: int = 4) -> list[bytes]:
    """Of the first queues."""
    return [record.body for queue in range(queues) for record in read_queue(connection, "T", queue)]


def answers(broker: BrokerProcess, condition: Callable[[ClientSocket], bool]) -> bool:
    """Whether the condition holds at the broker; False also while it changes its role."""
    try:
        with broker.connect() as connection:
            return condition(connection)
    except OSError:
        return False


def await_writes(broker: BrokerProcess) -> None:
    eventually(lambda: takes_writes(broker.address), what="writes")


def await_end(broker: BrokerProcess, end: int) -> None:
    eventually(lambda: answers(broker, lambda client: end_of(client) == end), what=f"the end {end}")


@pytest.fixture
def under(tmp_path: Path) -> Iterator[Under]:
    under = Under(tmp_path)
    try:
        yield under
    finally:
        under.close()


def test_a_broker_refuses_sends_until_the_controllers_made_it_the_master(under: Under) -> None:
    under.controller.answers = False
    broker = under.start("a")
    with broker.connect() as connection:
        answer = send(connection, "T", b"early", queue_id=0)
        assert answer.code == ResponseCode.SYSTEM_BUSY
        epochs = connection.ask(RequestCode.GET_BROKER_EPOCH_CACHE)
        assert b'"epochList":[]' in epochs.body
    assert RequestCode.CONTROLLER_REGISTER_BROKER not in under.controller.asked
    under.controller.answers = True
    await_writes(broker)
    assert (under.controller.master, under.controller.epoch) == (1, 1)
    assert (broker.store / "brokerIdentity").read_text() == f"DefaultCluster#{NAME}#1"
    assert (broker.store / "epochFileCheckpoint").read_text().endswith("\n1-0\n")
    with broker.connect() as connection:
        body = connection.ask(RequestCode.GET_BROKER_EPOCH_CACHE).body
        assert b'"brokerId":0' in body
        assert b'"epoch":1,"startOffset":0' in body
    assert broker.stop() == 0


def test_a_topic_that_the_new_master_had_not_heard_of_is_found_in_its_queues(under: Under) -> None:
    """A slave asks for topics each second; the master created this one right after it was asked, and died."""
    master, slave = under.pair()
    with master.connect() as client, slave.connect() as reader:
        assert send(client, "Known", b"first").code == 0
        known = {"topic": "Known"}
        eventually(lambda: reader.ask(RequestCode.GET_TOPIC_CONFIG, known).code == 0, what="the first topic")
        for number in range(4):
            assert send(client, "New", b"%d" % number, queue_id=number).code == 0
        eventually(lambda: end_of(reader) == end_of(client), what="the end")
        assert reader.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": "New"}).code == ResponseCode.TOPIC_NOT_EXIST
        master.kill()
    eventually(lambda: under.controller.master == 2, what="the election")
    eventually(lambda: is_leading(slave), what="the new master")
    with slave.connect() as connection:
        found = [record.body for queue in range(4) for record in read_queue(connection, "New", queue)]
        assert found == [b"0", b"1", b"2", b"3"]


def is_leading(broker: BrokerProcess) -> bool:
    try:
        with broker.connect() as connection:
            return bool(json.loads(connection.ask(RequestCode.GET_BROKER_HA_STATUS).body)["master"])
    except OSError:
        return False


def missing(broker: BrokerProcess) -> list[int]:
    """Numbers of those that this master expects, and that are not connected."""
    with broker.connect() as connection:
        status = json.loads(connection.ask(RequestCode.GET_BROKER_HA_STATUS).body)
    return [each["broker_id"] for each in status["members"] if not each["connected"]]


def test_members_of_the_set_are_expected_until_they_are_removed(under: Under) -> None:
    """A dead slave, over a restart of the master; a dead master, after the election."""
    master, slave = under.pair(haHousekeepingInterval="2000")
    with master.connect() as client:
        assert client.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"minInSyncReplicas=2").code == 0
    assert missing(master) == []
    slave.kill()
    eventually(lambda: missing(master) == [2], what="that the slave is missing")
    with master.connect() as client:
        status = json.loads(client.ask(RequestCode.GET_STATUS).body)
        assert "1 of 2 copies are in sync" in status["unready"]
        assert (
            client.ask(RequestCode.FORGET_REPLICA, {"name": "127.0.0.2"}).code
            == ResponseCode.INVALID_PARAMETER
        )
    slave = under.start("b", master.address[1] + 500)
    under.await_set({1, 2})
    eventually(lambda: missing(master) == [], what="that the slave is back")
    expected = slave.store / "config" / "expectedReplicas.json"
    eventually(expected.exists, what="that the slave knows its master")
    master.kill()
    eventually(lambda: is_leading(slave), what="the new master")
    eventually(lambda: missing(slave) == [1], what="that the old master is missing")
    with slave.connect() as client:
        (old,) = json.loads(client.ask(RequestCode.GET_BROKER_HA_STATUS).body)["members"]
        assert client.ask(RequestCode.FORGET_REPLICA, {"name": old["name"]}).code == 0
    assert missing(slave) == []


@pytest.mark.parametrize("flush", [pytest.param("ASYNC_FLUSH", marks=pytest.mark.long), "SYNC_FLUSH"])
def test_failover_under_load_loses_nothing_that_was_acknowledged(under: Under, flush: str) -> None:
    master, slave = under.pair(flushDiskType=flush)
    acknowledged: list[bytes] = []
    stop = threading.Event()

    def produce() -> None:
        number = 0
        with contextlib.suppress(OSError), master.connect() as connection:
            while not stop.is_set():
                body = b"%06d" % number * 20
                if send(connection, "T", body, queue_id=number % 4).code == 0:
                    acknowledged.append(body)
                number += 1

    producer = threading.Thread(target=produce)
    producer.start()
    eventually(lambda: len(acknowledged) > 500, what="500 messages")
    master.kill()
    killed = time.monotonic()
    stop.set()
    producer.join()
    await_writes(slave)
    assert time.monotonic() - killed < 5
    assert (under.controller.master, under.controller.epoch) == (2, 2)
    with slave.connect() as connection:
        found = bodies(connection)
    assert set(acknowledged) <= set(found)
    once = [body for body in found if body != b"probe"]
    assert len(once) == len(set(once)), "none twice"
    back = under.start("a", master.address[1])
    under.await_set({1, 2})
    sent(slave.address, 50)
    under.equal(slave, back)
    assert (back.store / "epochFileCheckpoint").read_bytes() == (
        slave.store / "epochFileCheckpoint"
    ).read_bytes()


def test_what_only_the_old_master_has_is_truncated(under: Under) -> None:
    master, slave = under.pair(slaveTimeout="300")
    sent(master.address, 40)
    common = under.equal(master, slave)
    under.controller.answers = False  # the slave stays in the set
    slave.kill()
    with master.connect() as connection:
        late = send(connection, "T", b"only here", queue_id=0)
        assert late.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
        assert end_of(connection) > common
        offset = int(late.ext["queueOffset"])
    master.kill()
    slave = under.start("b", slave.address[1])
    under.controller.answers = True
    await_writes(slave)
    sent(slave.address, 40)
    back = under.start("a", master.address[1])
    under.await_set({1, 2})
    end = under.equal(slave, back)
    assert end > common
    kept = list((back.store / "damaged").rglob("*"))
    assert any(b"only here" in path.read_bytes() for path in kept if path.is_file())
    with slave.connect() as one, back.connect() as other:
        ours, theirs = bodies(other, 1), bodies(one, 1)
        assert ours == theirs
        assert b"only here" not in ours
        assert len(ours) > offset, "another message has its place"


def test_slaves_show_what_is_confirmed(under: Under) -> None:
    """Readers of a slave see a message when all in the set have it, not before."""
    master, slave = under.pair(slaveTimeout="60000")
    third = under.start("c")
    under.await_set({1, 2, 3})
    sent(master.address, 10)
    under.equal(master, slave, third)
    with master.connect() as connection, slave.connect() as reader:
        with paused(third.process):
            before = len(bodies(reader, 1))
            connection.send_request(RequestCode.SEND_MESSAGE_V2, send_ext("T", 0), b"not yet")
            end = end_of(reader)
            eventually(lambda: end_of(reader) > end, what="the slave has it")
            time.sleep(0.3)
            assert len(bodies(reader, 1)) == before
        eventually(lambda: len(bodies(reader, 1)) == before + 1, what="it is shown")


def test_a_master_that_starts_again_shows_what_is_confirmed(under: Under) -> None:
    """The rest once the others in the set have it, which the controllers have not changed meanwhile."""
    master, slave = under.pair(slaveTimeout="300", haMaxTimeSlaveNotCatchup="60000")
    sent(master.address, 10)
    under.equal(master, slave)
    under.controller.elects = under.controller.alters = False
    with contextlib.ExitStack() as stack:
        stack.enter_context(paused(slave.process))
        with master.connect() as connection:
            before = len(bodies(connection, 1))
            assert send(connection, "T", b"tail", queue_id=0).code == ResponseCode.FLUSH_SLAVE_TIMEOUT
        master.kill()
        again = under.start("a", master.address[1], slaveTimeout="300", haMaxTimeSlaveNotCatchup="60000")
        eventually(lambda: answers(again, is_master), what="that it is the master again")
        with again.connect() as connection:
            time.sleep(0.6)
            assert len(bodies(connection, 1)) == before
            stack.close()
            eventually(lambda: len(bodies(connection, 1)) == before + 1, what="the tail")


def test_a_slave_follows_again_although_its_last_record_is_not_confirmed(under: Under) -> None:
    """The set cannot change meanwhile, so the record is confirmed only once the slave follows."""
    master, slave = under.pair(slaveTimeout="60000")
    sent(master.address, 10)
    common = under.equal(master, slave)
    under.controller.alters = False
    with master.connect() as connection:
        with paused(slave.process):
            third = under.start("c")
            opaque = connection.send_request(RequestCode.SEND_MESSAGE_V2, send_ext("T", 0), b"held")
            eventually(lambda: end_of(connection) > common, what="the record")
            await_end(third, end_of(connection))
            third.kill()
            third = under.start("c", third.address[1])
            eventually(lambda: state_of(third) == "following", what="the third follows again")
        assert connection.answer_to(opaque).code == 0


def test_a_slave_follows_again_although_the_last_record_was_trimmed(under: Under) -> None:
    master, slave = under.pair()
    sent(master.address, 10)
    under.equal(master, slave)
    with master.connect() as connection:
        trimmed = connection.ask(RequestCode.TRIM_TOPIC, {"topic": "T", "offset": "-1"})
        assert trimmed.code == 0, trimmed.remark
        assert record_sum(connection, 0).startswith(f"{len(first_record(master))}-")
        for offset in (-1, 1, end_of(connection) - 4, end_of(connection), 1 << 40):
            assert record_sum(connection, offset) == ""
    slave.kill()
    slave = under.start("b", slave.address[1])
    eventually(lambda: state_of(slave) == "following", what="the state")


def test_a_slave_counts_from_the_moment_the_controllers_are_asked(under: Under) -> None:
    """They may have taken it into the set already, and elect it next."""
    master = under.start("a", slaveTimeout="300")
    await_writes(master)
    under.controller.alters = False
    slave = under.start("b")
    asked = under.controller.asked
    alter = RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET
    eventually(lambda: asked.count(alter) > 2, what="that it asks for the set without writes")
    under.controller.answers = False
    before = asked.count(alter)
    eventually(lambda: asked.count(alter) > before, what="that it asks again")
    with paused(slave.process), master.connect() as connection:
        answer = send(connection, "T", b"x", queue_id=0)
        assert answer.code == ResponseCode.FLUSH_SLAVE_TIMEOUT


def test_learners_follow_and_never_count(under: Under) -> None:
    master = under.start("a")
    await_writes(master)
    learner = under.start("b", asyncLearner="true")
    sent(master.address, 30)
    under.equal(master, learner)
    time.sleep(1.2)
    assert under.controller.set == {1}


def test_a_dead_slave_leaves_the_set_and_too_few_are_refused(under: Under) -> None:
    master, slave = under.pair(minInSyncReplicas="1")
    slave.kill()
    under.await_set({1})
    sent(master.address, 5)
    with master.connect() as connection:
        connection.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"minInSyncReplicas=2")
        refused = send(connection, "T", b"x", queue_id=0)
    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert "in-sync replicas not enough" in (refused.remark or "")


def test_a_slave_without_controllers_is_told_why(under: Under) -> None:
    """The two wires do not understand each other: both ends say so."""
    master = under.start("a", haListenPort="0")
    await_writes(master)
    with master.connect() as connection:
        ha = connection.ask(RequestCode.EXCHANGE_BROKER_HA_INFO).ext["masterHaAddress"]
    host, port = ha.split(":")
    with contextlib.closing(ClientSocket((host, int(port)))) as raw:
        raw.send_raw((5).to_bytes(8, "big") * 2)
        assert raw.closed_by_peer(5)
    why = "set enableControllerMode there as here"
    eventually(lambda: why in master.log.read_text(), what="the reason")


def test_a_slave_is_one_connection_and_never_the_master_itself(under: Under) -> None:
    """A store that was copied with its brokerIdentity, and a slave whose old connection is still open."""
    master = under.start("a", haListenPort="0")
    await_writes(master)
    with master.connect() as connection:
        ha = connection.ask(RequestCode.EXCHANGE_BROKER_HA_INFO).ext["masterHaAddress"]
        end = end_of(connection)
    host, port = ha.split(":")
    with contextlib.ExitStack() as stack:

        def connected(number: int, at: int) -> ClientSocket:
            raw = stack.enter_context(contextlib.closing(ClientSocket((host, int(port)))))
            raw.send_raw(greeting_frame(Greeting(number)) + acknowledgement(at))
            return raw

        assert connected(1, 0).closed_by_peer(5)
        eventually(lambda: "it has this broker's number 1" in master.log.read_text(), what="the reason")
        first = connected(2, end)
        eventually(lambda: "slave 2 at" in master.log.read_text(), what="that it copies")
        second = connected(2, 0)
        assert first.closed_by_peer(5)
        assert not second.closed_by_peer(0.3)
    assert under.controller.set == {1}
    assert takes_writes(master.address)


def test_only_the_controllers_promote(under: Under) -> None:
    _, slave = under.pair()
    ran = here("promote", "{}:{}".format(*slave.address), "--yes")
    assert (ran.code, "mqadmin electMaster" in ran.err) == (1, True)


def test_a_slave_says_whom_it_follows(under: Under) -> None:
    master, slave = under.pair()
    eventually(lambda: state_of(slave) == "following", what="the state")
    answer = takes_writes(slave.address)
    assert not answer, "a slave takes no writes"
    assert master.stop() == 0
    await_writes(slave)


def test_a_killed_master_that_is_still_the_master_begins_its_epoch_again(under: Under) -> None:
    """It may have lost what its slaves have: they copy it again from the end of the epoch before."""
    master = under.start("a")
    await_writes(master)
    first = sent(master.address, 20)
    assert master.stop() == 0
    master = under.start("a", master.address[1])
    await_writes(master)
    last, end = under.controller.epoch, sent(master.address, 20)
    epochs = master.store / "epochFileCheckpoint"
    assert epochs.read_text().endswith(f"\n1-0\n{last}-{first}\n")
    under.controller.elects = False
    for is_killed in (True, False):
        master.kill() if is_killed else master.stop()
        master = under.start("a", master.address[1])
        await_writes(master)
        assert under.controller.epoch == last
        assert epochs.read_text().endswith(f"\n1-0\n{last}-{end}\n"), "a clean stop loses nothing"


def test_an_empty_slave_copies_the_whole_log_or_the_last_file(under: Under) -> None:
    master = under.start("a")
    await_writes(master)
    with master.connect() as connection:
        for number in range(90):
            assert send(connection, "T", b"%d" % number * 4000, queue_id=0).code == 0
    whole = under.start("b")
    end = under.equal(master, whole)
    assert end > 2 * SEGMENT
    last = under.start("c", syncFromLastFile="true")
    await_end(last, end)
    files = sorted(path.name for path in (last.store / "commitlog").iterdir() if path.name.isdigit())
    assert int(files[0]) == end - end % SEGMENT
    under.await_set({1, 2, 3})


def test_a_log_of_another_broker_is_not_followed(under: Under) -> None:
    master = under.start("a")
    await_writes(master)
    sent(master.address, 20)
    with broker_under(under.folder / "b", 0, enableControllerMode="false", brokerName=NAME) as other:
        await_writes(other)
        sent(other.address, 5)
        assert other.stop() == 0
    slave = under.start("b")
    eventually(lambda: state_of(slave) == "diverged", what="the state")
    assert under.controller.set == {1}


def record_sum(connection: ClientSocket, offset: int) -> str:
    ext = {"firearrowRecordOffset": str(offset)}
    return connection.ask(RequestCode.EXCHANGE_BROKER_HA_INFO, ext).ext["firearrowRecordSum"]


def first_record(broker: BrokerProcess) -> bytes:
    data = (broker.store / "commitlog" / f"{0:020d}").read_bytes()
    return data[: int.from_bytes(data[:4])]


@pytest.fixture
def scripted(under: Under) -> Iterator[tuple[BrokerProcess, int, ScriptedMaster]]:
    """A broker with a log that ends there, which was the master of epoch 1, and a master that was none yet."""
    broker = under.start("a")
    await_writes(broker)
    end = sent(broker.address, 20)
    master = ScriptedMaster(broker.store / "commitlog", end, lambda: b"")
    try:
        yield broker, end, master
    finally:
        master.close()


def test_a_handshake_of_a_former_master_truncates_nothing(
    under: Under, scripted: tuple[BrokerProcess, int, ScriptedMaster]
) -> None:
    """It comes after the controllers have named another one, and its log is shorter."""
    broker, end, former = scripted
    answered = threading.Event()
    newer = ScriptedMaster(former.folder, end, lambda: welcome_frame(end, [Epoch(1, 0), Epoch(3, end)]))

    def welcome() -> bytes:
        answered.wait(10)
        return welcome_frame(end - 100, [Epoch(1, 0), Epoch(2, end - 100)])

    former.welcome = welcome
    under.controller.appoint(8, former.address)
    assert former.greeted.wait(20)
    under.controller.appoint(9, newer.address)
    eventually(lambda: " in epoch 3" in broker.log.read_text(), what="the role")
    answered.set()
    try:
        eventually(lambda: end in newer.acks.values(), what="that it follows the newer one")
        assert set(former.acks.values()) == {-1}
        assert answers(broker, lambda client: end_of(client) == end)
        assert "truncated" not in broker.log.read_text()
    finally:
        newer.close()


@pytest.mark.parametrize("fault", ["epochs", "frame"])
def test_a_handshake_that_cannot_be_is_reported_and_tried_again(
    under: Under, scripted: tuple[BrokerProcess, int, ScriptedMaster], fault: str
) -> None:
    broker, end, master = scripted
    epochs = [Epoch(1, 0), Epoch(2, 200), Epoch(2, 100)]
    master.welcome = lambda: welcome_frame(end, epochs) if fault == "epochs" else bytes(20)
    under.controller.appoint(9, master.address)
    why = {"epochs": "epochs do not follow each other", "frame": "no handshake of a controller's member"}[
        fault
    ]
    eventually(lambda: why in broker.log.read_text(), what="the reason")
    master.welcome = lambda: welcome_frame(end, [Epoch(1, 0), Epoch(2, end)])
    eventually(lambda: end in master.acks.values(), what="that it follows")
    assert "truncated" not in broker.log.read_text()


def state_of(slave: BrokerProcess) -> object:
    try:
        with slave.connect() as connection:
            return ha_client(connection)["state"]
    except (OSError, AssertionError):
        return None
