"""A large table of offsets under commits: topics are made meanwhile, its file is not written again and again."""

import json
import time
from pathlib import Path

from firearrow._native.wire.codes import RequestCode
from tests.support.broker_process import BrokerProcess
from tests.support.requests import topic_ext

TOPICS, GROUPS, QUEUES = 100, 400, 4
COMMITS_S = 2.0
CREATED_S = 2.0
"""A topic is made within this time, on a busy machine."""
SAVES_AFTER_MAX = 3
"""One save that runs, one that waits, and one of what else the broker does."""


def write_tables(store: Path) -> None:
    folder, version = store / "config", {"counter": 1, "timestamp": 1, "stateVersion": 0}
    folder.mkdir(parents=True)
    offsets = {
        f"T{topic}@G{group}": {str(queue): 1 for queue in range(QUEUES)}
        for topic in range(TOPICS)
        for group in range(GROUPS)
    }
    groups = {f"G{group}": {"groupName": f"G{group}"} for group in range(GROUPS)}
    topics = {
        f"T{topic}": {"topicName": f"T{topic}", "readQueueNums": QUEUES, "writeQueueNums": QUEUES, "perm": 6}
        for topic in range(TOPICS)
    }
    for name, table, content in (
        ("consumerOffset", "offsetTable", offsets),
        ("subscriptionGroup", "subscriptionGroupTable", groups),
        ("topics", "topicConfigTable", topics),
    ):
        (folder / f"{name}.json").write_text(json.dumps({"dataVersion": version, table: content}))


def saves_of(file: Path, seconds: float) -> int:
    """How often the file is replaced in this time."""
    seen, until = [file.stat().st_ino], time.monotonic() + seconds
    while time.monotonic() < until:
        if (inode := file.stat().st_ino) != seen[-1]:
            seen.append(inode)
        time.sleep(0.005)
    return len(seen) - 1


def test_a_large_table_holds_up_neither_topics_nor_a_stop(tmp_path: Path) -> None:
    store = tmp_path / "store"
    write_tables(store)
    with (
        BrokerProcess(store, "--set", "flushConsumerOffsetInterval=100") as broker,
        broker.connect() as connection,
    ):
        until, number, slowest_s = time.monotonic() + COMMITS_S, 1, 0.0
        while time.monotonic() < until:
            number += 1
            for group in range(GROUPS):
                ext = {
                    "consumerGroup": f"G{group}",
                    "topic": f"T{number % TOPICS}",
                    "queueId": str(number % QUEUES),
                }
                code = connection.ask(
                    RequestCode.UPDATE_CONSUMER_OFFSET, ext | {"commitOffset": str(number)}
                ).code
                assert code == 0
            began = time.monotonic()
            topic = topic_ext(f"New{number}")
            assert connection.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic).code == 0
            slowest_s = max(slowest_s, time.monotonic() - began)
        assert slowest_s < CREATED_S
        assert saves_of(store / "config" / "consumerOffset.json", 2) <= SAVES_AFTER_MAX
        assert saves_of(store / "config" / "consumerOffset.json", 0.5) == 0
        connection.ask(RequestCode.UPDATE_CONSUMER_OFFSET, ext | {"commitOffset": str(number)})
        assert saves_of(store / "config" / "consumerOffset.json", 0.5) == 0  # what is committed again
        assert broker.stop() == 0
    with BrokerProcess(store) as broker, broker.connect() as connection:
        assert connection.ask(RequestCode.QUERY_CONSUMER_OFFSET, ext).ext["offset"] == str(number)
