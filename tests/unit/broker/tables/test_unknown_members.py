"""Members that a newer version wrote into a config file survive load, change and save until their entry is deleted."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import orjson
import pytest

from firearrow._native.protocol.fastjson import DEPTH_MAX, dumps, loads
from firearrow.broker.pop.order_info import ConsumerOrderInfo
from firearrow.broker.tables import config_file
from firearrow.broker.tables.config_file import ConfigFile
from firearrow.broker.tables.delay_offsets import DelayOffsets
from firearrow.broker.tables.groups import GroupConfig, GroupTable
from firearrow.broker.tables.kv import KvTable
from firearrow.broker.tables.offsets import ConsumerOffsets
from firearrow.broker.tables.request_modes import POP, PULL, RequestMode, RequestModes
from firearrow.broker.tables.topics import TopicConfig, TopicSettings, TopicTable
from firearrow.broker.timers.metrics import TimerMetrics
from tests.broker.tables import golden_config
from tests.support.clock import ManualClock
from tests.support.handler_harness import HandlerHarness

VALUE = {
    "a": [1, -0.5, None, True, {"é \\": {"deep": [[], {}, '\t:" ']}}],
    "long": (1 << 63) - 1,
    "rate": 1.5e300,
    "7": "seven",
}
CLOCK = ManualClock(5)


class Table(Protocol):
    def to_json(self) -> bytes: ...
    def load(self, text: bytes) -> None: ...


@dataclass(frozen=True)
class Case:
    """`fill` makes the entry at `entry`; `change` changes something else and, where it can, the entry."""

    make: Callable[[], Any]
    fill: Callable[[Any], object]
    change: Callable[[Any], object]
    entry: tuple[str, ...] = ()


CASES = {
    "topics.json": Case(
        lambda: TopicTable(CLOCK),
        lambda table: table.create("T", 4),
        lambda table: table.update_all([TopicConfig("T", 6, 6), TopicConfig("U")]),
        ("topicConfigTable", "T"),
    ),
    "subscriptionGroup.json": Case(
        lambda: GroupTable(CLOCK),
        lambda table: table.find("G"),
        lambda table: table.update_all([GroupConfig("G", retry_max_times=3), GroupConfig("H")]),
        ("subscriptionGroupTable", "G"),
    ),
    "consumerOffset.json": Case(
        lambda: ConsumerOffsets(CLOCK),
        lambda table: table.commit("G", "T", 0, 7),
        lambda table: table.commit("G", "T", 0, 8),
    ),
    "lmqConsumerOffset.json": Case(
        lambda: ConsumerOffsets(CLOCK, is_lmq_enabled=True),
        lambda table: table.commit("%LMQ%G", "T", 0, 7),
        lambda table: table.commit("%LMQ%G", "T", 0, 8),
    ),
    "delayOffset.json": Case(
        lambda: DelayOffsets(CLOCK), lambda table: table.set(1, 7), lambda table: table.set(1, 8)
    ),
    "kvConfig.json": Case(
        lambda: KvTable(lambda: None),
        lambda table: table.put("n", "k", "v"),
        lambda table: table.put("n", "k", "w"),
    ),
    "messageRequestMode.json": Case(
        RequestModes,
        lambda table: table.set(RequestMode("T", "G", POP, 1)),
        lambda table: table.set(RequestMode("T", "G", PULL, 2)),
        ("messageRequestModeMap", "T", "G"),
    ),
    "consumerOrderInfo.json": Case(
        lambda: ConsumerOrderInfo(CLOCK),
        lambda table: table.update("T", "G", 3, "attempt", 5, 1000, [7, 8]),
        lambda table: table.acked("T", "G", 3, 7, 5),
        ("table", "T@G", "3"),
    ),
    "timermetrics": Case(
        lambda: TimerMetrics(CLOCK, lambda: None),
        lambda table: table.add("T", 1),
        lambda table: table.add("T", 1),
        ("timingCount", "T"),
    ),
}


def at(document: Any, member: tuple[str, ...]) -> Any:  # noqa: ANN401 (a value of parsed JSON)
    for step in member:
        document = document[step]
    return document


def marked(case: Case) -> tuple[Any, list[tuple[str, ...]]]:
    """A file with an unknown member at each of its levels, and where those are."""
    table = case.make()
    case.fill(table)
    document = loads(table.to_json())
    members = [member for member in ((), case.entry, ("dataVersion",)) if not member or member[0] in document]
    for member in members:
        at(document, member)["unknownOfLater"] = VALUE
    return document, members


@pytest.mark.parametrize("name", CASES)
def test_they_survive_load_change_and_save(name: str, tmp_path: Path) -> None:
    case, file = CASES[name], ConfigFile(tmp_path / name)
    document, members = marked(case)
    file.write(dumps(document))
    for _ in range(2):
        table = case.make()
        assert file.load(table.load)
        case.change(table)
        file.write(table.to_json())
    after = loads(file.path.read_bytes())
    assert [dumps(at(after, member)["unknownOfLater"]) for member in members] == [dumps(VALUE)] * len(members)
    assert after != document


@pytest.mark.parametrize("name", CASES)
def test_what_was_loaded_is_written_as_it_was(name: str) -> None:
    document, _ = marked(CASES[name])
    table = CASES[name].make()
    table.load(dumps(document))
    assert loads(table.to_json()) == document


@pytest.mark.parametrize("name", CASES)
def test_responses_do_not_contain_them(name: str) -> None:
    table = CASES[name].make()
    table.load(dumps(marked(CASES[name])[0]))
    objects = [table.to_object()] if hasattr(table, "to_object") else []
    if isinstance(table, TopicTable | GroupTable):
        objects += [config.to_object() for config in (table.get("T"), table.get("G")) if config is not None]
    assert b"unknownOfLater" not in dumps(objects)
    assert b"unknownOfLater" in table.to_json()


@pytest.mark.parametrize(
    ("name", "end", "begin"),
    [
        ("topics.json", lambda table: table.delete("T"), lambda table: table.update(TopicConfig("T"))),
        ("subscriptionGroup.json", lambda table: table.delete("G"), lambda table: table.find("G")),
        (
            "consumerOrderInfo.json",
            lambda table: table.clear("T", "G", 3),
            CASES["consumerOrderInfo.json"].fill,
        ),
        ("consumerOrderInfo.json", lambda table: None, CASES["consumerOrderInfo.json"].fill),
    ],
    ids=["topic", "group", "order", "next pop"],
)
def test_they_are_deleted_with_their_entry(
    name: str, end: Callable[[Any], object], begin: Callable[[Any], object]
) -> None:
    table = CASES[name].make()
    table.load(dumps(marked(CASES[name])[0]))
    end(table)
    begin(table)
    after = loads(table.to_json())
    assert "unknownOfLater" in after
    assert "unknownOfLater" not in at(after, CASES[name].entry)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if "dataVersion" in marked(case)[0]])
def test_a_refused_file_leaves_the_previous_ones(name: str) -> None:
    table = CASES[name].make()
    table.load(dumps(marked(CASES[name])[0]))
    before = table.to_json()
    with pytest.raises(ValueError, match="dataVersion"):
        table.load(b'{"other":1,"dataVersion":7}')
    assert table.to_json() == before


GOLDEN: dict[str, Callable[[], Any]] = {
    "topics.json": lambda: TopicTable(CLOCK, TopicSettings(broker="broker-a")),
    "subscriptionGroup.json": lambda: GroupTable(CLOCK),
    "lmqConsumerOffset.json": lambda: ConsumerOffsets(CLOCK, is_lmq_enabled=True),
    "delayOffset.json": lambda: DelayOffsets(CLOCK),
    "messageRequestMode.json": RequestModes,
    "consumerOrderInfo.json": lambda: ConsumerOrderInfo(CLOCK),
    "timermetrics": lambda: TimerMetrics(CLOCK, lambda: None),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_apaches_files_with_unknown_members(name: str) -> None:
    document, entry = loads(golden_config.config_file(name)), CASES[name].entry
    entries = at(document, entry[:1]) if entry else {}
    for _ in entry[2:]:
        entries = {key: one for inner in entries.values() for key, one in inner.items()}
    for of in (document, document.get("dataVersion", {}), *entries.values()):
        of["unknownOfLater"] = VALUE
    for topics in document.get("groupTopicMap", {}).values():
        topics.sort()  # a Java set
    table = GOLDEN[name]()
    table.load(dumps(document))
    assert loads(table.to_json()) == document
    CASES[name].fill(table)
    assert loads(table.to_json())["unknownOfLater"] == VALUE


def topics_with(members: dict[str, object], *, top: bool = False) -> dict[str, Any]:
    """What is kept of those members of a topic, or of the file."""
    table = TopicTable(CLOCK)
    entry = {"topicName": "T", **({} if top else members)}
    head = members if top else {}
    table.load(orjson.dumps({"topicConfigTable": {"T": entry}, **head}))
    after = orjson.loads(table.to_json())
    of = after if top else after["topicConfigTable"]["T"]
    return {name: of[name] for name in members if name in of}


@pytest.mark.parametrize(
    ("top", "most"), [(False, config_file.ENTRY_BYTES_MAX), (True, config_file.FILE_BYTES_MAX)]
)
def test_bytes_are_bounded(top: bool, most: int, caplog: pytest.LogCaptureFixture) -> None:
    full = {"first": "x" * (most - len('"first""""b"1')), "b": 1}
    assert topics_with(full, top=top) == full
    assert not caplog.records
    with caplog.at_level(logging.WARNING):
        assert topics_with({**full, "c": 1, "d": 2}, top=top) == full
    assert len(caplog.records) == 1
    assert "topics.json: 2 unknown members are dropped" in caplog.text


def nested(levels: int) -> object:
    value: object = []
    for _ in range(levels):
        value = [value]
    return value


def test_depth_is_bounded_so_that_the_file_can_be_written() -> None:
    deep = {"deep": nested(DEPTH_MAX - 3)}
    assert topics_with(deep) == deep
    assert topics_with({"deep": nested(DEPTH_MAX - 2), "b": 1}) == {"b": 1}
    top = ConsumerOffsets(CLOCK)
    top.commit("G", "T", 0, 1)
    head = loads(top.to_json())
    for levels in (DEPTH_MAX - 1, DEPTH_MAX, 300):
        top.load(orjson.dumps(head)[:-1] + b',"deep":' + b"[" * (levels + 1) + b"]" * (levels + 1) + b"}")
        assert ("deep" in loads(top.to_json())) == (levels == DEPTH_MAX - 1)


def test_a_group_that_could_not_be_written_is_refused() -> None:
    table = GroupTable(CLOCK)
    for name in ("groupRetryPolicy", "subscriptionDataSet"):
        value = {"type": nested(DEPTH_MAX - 4)} if name == "groupRetryPolicy" else nested(DEPTH_MAX - 3)
        table.update(GroupConfig.from_object({"groupName": "G", name: value}))
        assert table.to_json()
        with pytest.raises(ValueError, match=f"{name} is nested deeper than {DEPTH_MAX - 3}"):
            GroupConfig.from_object({"groupName": "G", name: {"a": value}})


def test_a_member_that_only_a_lenient_parser_reads_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    table = DelayOffsets(CLOCK)
    table.load(
        b'{"odd":{{"brokerName":"b","queueId":0,"topic":"t"}:5},"bare":{0:1},"offsetTable":{1:7}}',
    )
    after = loads(table.to_json())
    assert after["bare"] == {"0": 1}
    assert "odd" not in after
    assert "the first is 'odd'" in caplog.text


def test_requests_replace_the_members_they_contain_and_keep_the_others() -> None:
    harness = HandlerHarness()
    harness.topics.load(dumps(marked(CASES["topics.json"])[0]))
    harness.groups.load(dumps(marked(CASES["subscriptionGroup.json"])[0]))
    wanted = {"topic": "T", "defaultTopic": "TBW102", "readQueueNums": 9, "writeQueueNums": 9, "perm": 4}
    assert harness.ask(17, {**wanted, "topicFilterType": "SINGLE_TAG", "order": "false"}).code == 0
    assert harness.ask(200, body=b'{"groupName":"G","retryMaxTimes":3,"unknownOfLater":1}').code == 0
    topic = at(loads(harness.topics.to_json()), CASES["topics.json"].entry)
    group = at(loads(harness.groups.to_json()), CASES["subscriptionGroup.json"].entry)
    assert (topic["perm"], topic["unknownOfLater"]) == (4, VALUE)
    assert (group["retryMaxTimes"], group["unknownOfLater"]) == (3, VALUE)
    assert b"unknownOfLater" not in harness.ask(351, {"topic": "T"}).body
    deep = b'{"groupName":"G","groupRetryPolicy":{"a":' + b"[" * 300 + b"]" * 300 + b"}}"
    refused = harness.ask(200, body=deep)
    assert refused.code == 1
    assert refused.remark == "groupRetryPolicy is nested deeper than 61"
