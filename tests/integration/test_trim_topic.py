"""TRIM_TOPIC (30001): what lies before a queue's new first offset is gone for every reader, also after a kill."""

import json
import time
from pathlib import Path

import pytest

from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from tests.support.broker_process import BrokerProcess
from tests.support.client_socket import ClientSocket
from tests.support.eventually import eventually
from tests.support.fork_server import run_forked
from tests.support.requests import (
    COMMIT,
    SUBSCRIPTION,
    SUSPEND,
    pull,
    pull_ext,
    records,
    send,
    send_ext,
    topic_ext,
)

FOUND, NOT_FOUND, MOVED = 0, 19, 21
SMALL = (
    "--set", "mappedFileSizeCommitLog=65536",
    "--set", "maxMessageSize=32768",
    "--set", "mappedFileSizeConsumeQueue=2000",
    "--set", "deleteConsumeQueueFilesInterval=0",
    "--set", "deleteCommitLogFilesInterval=0",
    "--set", "cleanResourceInterval=200",
)  # fmt: skip
"""65 messages of 1,000 bytes fill a file of the log, 100 entries one of a queue."""


def trim(connection: ClientSocket, topic: str, **fields: object) -> RemotingCommand:
    ext = {"topic": topic} | {name: str(value) for name, value in fields.items()}
    return connection.ask(RequestCode.TRIM_TOPIC, ext)


def trimmed(connection: ClientSocket, topic: str, **fields: object) -> list[tuple[int, int, int, int]]:
    """(Queue, first offset, end, messages removed) of each queue."""
    answer = trim(connection, topic, **fields)
    assert answer.code == 0, answer.remark
    names = ("queueId", "minOffset", "maxOffset", "trimmed")
    return [tuple(queue[name] for name in names) for queue in json.loads(answer.body)["queues"]]


def fill(connection: ClientSocket, topic: str, count: int, queue_id: int = 0, size: int = 1) -> None:
    for n in range(count):
        ext = send_ext(topic, queue_id, i=f"KEYS\x01K{n}\x02UNIQ_KEY\x01{topic}{queue_id}-{n}\x02")
        assert connection.ask(RequestCode.SEND_MESSAGE_V2, ext, (b"%d " % n).ljust(size)).code == 0


def first_offset(connection: ClientSocket, topic: str, queue_id: int = 0) -> int:
    ext = {"topic": topic, "queueId": str(queue_id)}
    return int(connection.ask(RequestCode.GET_MIN_OFFSET, ext).ext["offset"])


def by_key(connection: ClientSocket, topic: str, key: str) -> int:
    """The code of a query."""
    ext = {"topic": topic, "key": key, "maxNum": "8", "beginTimestamp": "0", "endTimestamp": str(2**62)}
    return connection.ask(RequestCode.QUERY_MESSAGE, ext).code


def files(folder: Path) -> list[int]:
    return sorted(int(path.name) for path in folder.iterdir())


def verified(store: Path) -> str:
    done = run_forked("store", "verify", str(store))
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_what_was_before_is_gone_for_every_reader(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "store") as broker, broker.connect() as client:
        fill(client, "T", 20)
        whole = list(records(pull(client, "T").body))
        time.sleep(0.01)
        between_ms = time.time_ns() // 1_000_000
        time.sleep(0.01)
        fill(client, "T", 20)
        assert trimmed(client, "T", queueId=0, offset=10) == [(0, 10, 40, 10)]
        assert first_offset(client, "T") == 10
        answer = pull(client, "T", 9)
        assert (answer.code, answer.ext["nextBeginOffset"], answer.ext["minOffset"]) == (MOVED, "10", "10")
        assert [record.queue_offset for record in records(pull(client, "T", 10).body)] == list(range(10, 40))
        for record in whole:
            ext = {"offset": str(record.physical_offset)}
            seen = client.ask(RequestCode.VIEW_MESSAGE_BY_ID, ext).code == 0
            assert seen == (record.queue_offset >= 10)
        assert by_key(client, "T", "T0-9") == 0  # the later one of the same id
        ext = {"topic": "T", "queueId": "0", "timestamp": "0"}
        assert client.ask(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, ext).ext["offset"] == "10"
        assert trimmed(client, "T", queueId=0, timestamp=between_ms) == [(0, 20, 40, 10)]
        assert trimmed(client, "T", offset=15) == [(0, 20, 40, 0), *((n, 0, 0, 0) for n in (1, 2, 3))]


def test_keys_and_unique_ids(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "store") as broker, broker.connect() as client:
        fill(client, "T", 10)
        fill(client, "Other", 10)
        trimmed(client, "T", offset=4)
        for n in range(10):
            assert (by_key(client, "T", f"K{n}") == 0) == (n >= 4)
            assert (by_key(client, "T", f"T0-{n}") == 0) == (n >= 4)
            assert by_key(client, "Other", f"K{n}") == 0


def test_a_dry_run_changes_nothing(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "store") as broker, broker.connect() as client:
        fill(client, "T", 10)
        assert trimmed(client, "T", queueId=0, offset=-1, dryRun="true") == [(0, 10, 10, 10)]
        assert first_offset(client, "T") == 0
        assert len(list(records(pull(client, "T").body))) == 10
        assert not (broker.store / "config" / "trimmedQueues.json").exists()


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", pytest.param("SYNC_FLUSH", marks=pytest.mark.long)])
def test_it_survives_a_kill(flush: str, tmp_path: Path) -> None:
    options = ("--set", f"flushDiskType={flush}")
    for round_ in range(3):
        with BrokerProcess(tmp_path / "store", *options) as broker, broker.connect() as client:
            assert first_offset(client, "T") == 10 * round_
            fill(client, "T", 10)
            assert trimmed(client, "T", queueId=0, offset=-1) == [(0, 10 * round_ + 10, 10 * round_ + 10, 10)]
            broker.kill()
    with BrokerProcess(tmp_path / "store") as broker, broker.connect() as client:
        assert first_offset(client, "T") == 30
        assert by_key(client, "T", "K3") != 0
        fill(client, "T", 1)
        assert [record.queue_offset for record in records(pull(client, "T", 30).body)] == [30]
        assert broker.stop() == 0
    verified(tmp_path / "store")


def test_files_are_freed_and_the_store_stays_whole(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with BrokerProcess(store, *SMALL) as broker, broker.connect() as client:
        fill(client, "T", 1)
        fill(client, "T", 450, 1, size=1000)
        fill(client, "Other", 100, 1, size=1000)
        trimmed(client, "T", queueId=1, offset=410)
        eventually(lambda: files(store / "consumequeue/T/1") == [8000])
        assert files(store / "commitlog")[0] == 0, "queue 0 has a message in the first file"
        trimmed(client, "T", queueId=0, offset=-1)
        eventually(lambda: files(store / "commitlog")[0] > 400_000)
        assert first_offset(client, "Other", 1) == 0
        got = pull(client, "Other", 0, 1)
        assert [record.queue_offset for record in records(got.body)][:3] == [0, 1, 2]
        assert next(records(pull(client, "T", 410, 1).body)).queue_offset == 410
        done = run_forked("store", "verify", "--live", str(store))
        assert done.returncode == 0, done.stdout
        broker.kill()
    with BrokerProcess(store, *SMALL) as broker, broker.connect() as client:
        assert [first_offset(client, "T", n) for n in (0, 1)] == [1, 410]
        assert broker.stop() == 0
    verified(store)


def test_a_store_with_records_but_no_entries_of_them_is_whole(tmp_path: Path) -> None:
    """Queue files are deleted although the log still has their records, for another topic's sake."""
    store = tmp_path / "store"
    with BrokerProcess(store, *SMALL) as broker, broker.connect() as client:
        fill(client, "Other", 1)
        fill(client, "T", 350)
        trimmed(client, "T", queueId=0, offset=320)
        eventually(lambda: files(store / "consumequeue/T/0") == [6000])
        assert broker.stop() == 0
    verified(store)
    for path in (store / "checkpoint", store / "consumequeue/T/0/00000000000000006000"):
        path.unlink()  # everything is compared with the log, which still has all records
    with BrokerProcess(store, *SMALL) as broker, broker.connect() as client:
        assert first_offset(client, "T") == 320
        assert [r.queue_offset for r in records(pull(client, "T", 320).body)] == list(range(320, 350))
        assert by_key(client, "T", "K319") != 0
        assert broker.stop() == 0


def test_a_consumer_reads_across_a_trim(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "store") as broker, broker.connect() as client, broker.connect() as admin:
        fill(admin, "T", 100)
        more = {"sysFlag": str(SUBSCRIPTION | COMMIT), "commitOffset": "20", "maxMsgNums": "20"}
        assert pull(client, "T", 20, **more).ext["nextBeginOffset"] == "40"
        trimmed(admin, "T", queueId=0, offset=60)
        ext = {"consumerGroup": "CG", "topic": "T", "queueId": "0"}
        assert admin.ask(RequestCode.QUERY_CONSUMER_OFFSET, ext).ext["offset"] == "20", "left as it was"
        answer = pull(client, "T", 40, **more)
        assert (answer.code, answer.ext["nextBeginOffset"]) == (MOVED, "60")
        assert [record.queue_offset for record in records(pull(client, "T", 60).body)] == list(range(60, 92))


def test_a_pull_that_is_held_goes_on(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "store") as broker, broker.connect() as client, broker.connect() as admin:
        fill(admin, "T", 10)
        ext = pull_ext("T", 10, sysFlag=str(SUBSCRIPTION | SUSPEND), suspendTimeoutMillis="15000")
        opaque = client.send_request(RequestCode.PULL_MESSAGE, ext)
        client.ask(RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": "0"})
        trimmed(admin, "T", queueId=0, offset=-1)
        fill(admin, "T", 1)
        answer = client.answer_to(opaque)
        assert [record.queue_offset for record in records(answer.body)] == [10]


def test_a_recreated_topic_is_not_trimmed(tmp_path: Path) -> None:
    for killed in (True, False):
        with BrokerProcess(tmp_path / "store") as broker, broker.connect() as client:
            client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
            fill(client, "T", 10)
            trimmed(client, "T", queueId=0, offset=8)
            client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
            fill(client, "T", 3)
            assert first_offset(client, "T") == 0
            if killed:
                broker.kill()
            else:
                assert broker.stop() == 0
        with BrokerProcess(tmp_path / "store") as broker, broker.connect() as client:
            assert first_offset(client, "T") == 0
            assert len(list(records(pull(client, "T").body))) == 3


REFUSED = {
    "no topic": ({"topic": "Nobody", "offset": "1"}, ResponseCode.TOPIC_NOT_EXIST),
    "timer": ({"topic": "rmq_sys_wheel_timer", "offset": "0"}, ResponseCode.NO_PERMISSION),
    "half": ({"topic": "RMQ_SYS_TRANS_HALF_TOPIC", "offset": "0"}, ResponseCode.NO_PERMISSION),
    "delays": ({"topic": "SCHEDULE_TOPIC_XXXX", "offset": "0"}, ResponseCode.NO_PERMISSION),
    "revive": ({"topic": "rmq_sys_REVIVE_LOG_DefaultCluster", "offset": "0"}, ResponseCode.NO_PERMISSION),
    "retries of pop": ({"topic": "%RETRY%CG_T", "offset": "0"}, ResponseCode.NO_PERMISSION),
    "neither": ({"topic": "T"}, ResponseCode.INVALID_PARAMETER),
    "both": ({"topic": "T", "offset": "1", "timestamp": "1"}, ResponseCode.INVALID_PARAMETER),
    "negative": ({"topic": "T", "offset": "-2"}, ResponseCode.INVALID_PARAMETER),
    "negative time": ({"topic": "T", "timestamp": "-1"}, ResponseCode.INVALID_PARAMETER),
    "past the end": ({"topic": "T", "offset": str(2**63 - 1)}, ResponseCode.INVALID_PARAMETER),
    "no queue": ({"topic": "T", "offset": "1", "queueId": "7"}, ResponseCode.INVALID_PARAMETER),
    "negative queue": ({"topic": "T", "offset": "1", "queueId": "-1"}, ResponseCode.INVALID_PARAMETER),
    "no number": ({"topic": "T", "offset": "x"}, ResponseCode.SYSTEM_ERROR),
    "no field": ({"offset": "1"}, ResponseCode.SYSTEM_ERROR),
}


def test_refusals_change_nothing(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "store") as broker, broker.connect() as client:
        fill(client, "T", 3)
        client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext("%RETRY%CG_T"))
        for name, (ext, code) in REFUSED.items():
            answer = client.ask(RequestCode.TRIM_TOPIC, ext)
            assert (answer.code, bool(answer.remark)) == (code, True), name
        assert first_offset(client, "T") == 0


def test_retries_and_dead_letters_of_a_group(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "store") as broker, broker.connect() as client:
        group = {"groupName": "CG", "consumeEnable": True, "retryQueueNums": 1, "retryMaxTimes": 16}
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        assert client.ask(code, {}, json.dumps(group).encode()).code == 0
        for topic in ("%RETRY%CG", "%DLQ%CG"):
            assert client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(topic, 1)).code == 0
            fill(client, topic, 3)
            assert trimmed(client, topic, offset=2) == [(0, 2, 3, 2)]


def test_lmqs_are_trimmed_apart(tmp_path: Path) -> None:
    options = ("--set", "enableLmq=true", "--set", "enableMultiDispatch=true")
    with BrokerProcess(tmp_path / "store", *options) as broker, broker.connect() as client:
        for n in range(5):
            ext = send_ext("T", i="INNER_MULTI_DISPATCH\x01%LMQ%a\x02")
            assert client.ask(RequestCode.SEND_MESSAGE_V2, ext, b"%d" % n).code == 0
        assert trimmed(client, "%LMQ%a", offset=3) == [(0, 3, 5, 3)]
        assert first_offset(client, "T") == 0
        assert len(list(records(pull(client, "T").body))) == 5
        trimmed(client, "T", offset=-1)
        assert pull(client, "%LMQ%a", 2).code == MOVED
        assert pull(client, "%LMQ%a", 3).code == FOUND


def test_senders_do_not_wait_for_a_trim_of_many_queues(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "store") as broker, broker.connect() as client, broker.connect() as sender:
        assert client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext("Wide", 1000)).code == 0
        for queue_id in range(1000):
            send(client, "Wide", b"x", queue_id)
        opaque = client.send_request(RequestCode.TRIM_TOPIC, {"topic": "Wide", "offset": "-1"})
        slowest = 0.0
        for _ in range(50):
            began = time.perf_counter()
            assert send(sender, "T", b"x").code == 0
            slowest = max(slowest, time.perf_counter() - began)
        assert len(json.loads(client.answer_to(opaque).body)["queues"]) == 1000
        assert slowest < 0.25
