"""The KV store of a name server, its file and its limits; and the options."""

from pathlib import Path

import pytest

from firearrow._native.protocol import fastjson
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base.errors import Refusal
from firearrow.broker.tables import kv as bounds
from firearrow.broker.tables.config_file import ConfigFile
from firearrow.broker.tables.kv import KvTable
from firearrow.broker.tables.naming_options import NamingOptions
from tests.support.name_server_harness import NameServerHarness, register_request


def test_a_value_is_put_got_listed_and_deleted() -> None:
    harness = NameServerHarness()
    put = harness.call(RequestCode.PUT_KV_CONFIG, namespace="n", key="k", value="v=ü;1")
    assert (put.code, put.ext, put.body) == (0, {}, b"")
    got = harness.call(RequestCode.GET_KV_CONFIG, namespace="n", key="k")
    assert (got.code, got.ext) == (0, {"value": "v=ü;1"})
    listed = harness.call(RequestCode.GET_KVLIST_BY_NAMESPACE, namespace="n")
    assert listed.body == '{"table":{"k":"v=ü;1"}}'.encode()
    assert harness.call(RequestCode.DELETE_KV_CONFIG, namespace="n", key="k").code == 0
    assert harness.kv_changes == 2
    gone = harness.call(RequestCode.GET_KV_CONFIG, namespace="n", key="k")
    assert (gone.code, gone.remark) == (ResponseCode.QUERY_NOT_FOUND, "No config item, Namespace: n Key: k")
    assert harness.call(RequestCode.GET_KVLIST_BY_NAMESPACE, namespace="n").body == b'{"table":{}}'


def test_missing_entries() -> None:
    harness = NameServerHarness()
    answer = harness.call(RequestCode.GET_KVLIST_BY_NAMESPACE, namespace="n")
    assert (answer.code, answer.remark) == (ResponseCode.QUERY_NOT_FOUND, "No config item, Namespace: n")
    assert harness.call(RequestCode.DELETE_KV_CONFIG, namespace="n", key="k").code == 0
    missing = harness.call(RequestCode.PUT_KV_CONFIG, namespace="n", key="k")
    assert missing.code == ResponseCode.SYSTEM_ERROR
    assert missing.remark is not None
    assert "value" in missing.remark
    assert harness.kv_changes == 0


def test_the_file_has_apaches_format(tmp_path: Path) -> None:
    table = KvTable(lambda: None)
    table.put("n", "k", "v")
    table.put("ORDER_TOPIC_CONFIG", "T", "a:4;b:4")
    assert table.to_json() == b'{"configTable":{"ORDER_TOPIC_CONFIG":{"T":"a:4;b:4"},"n":{"k":"v"}}}'
    file = ConfigFile(tmp_path / "kvConfig.json")
    file.write(table.to_json())
    again = KvTable(lambda: None)
    assert file.load(again.load)
    assert again.to_json() == table.to_json()


@pytest.mark.parametrize(
    "text", [b"", b"[]", b"{}", b'{"configTable":{"n":3}}', b'{"configTable":{"n":{"":"v"}}}']
)
def test_a_damaged_file_changes_nothing(text: bytes) -> None:
    table = KvTable(lambda: None)
    table.put("n", "k", "v")
    with pytest.raises(ValueError, match=r".+"):
        table.load(text)
    assert table.get("n", "k") == "v"


@pytest.mark.parametrize(
    ("namespace", "key", "value", "names"),
    [
        ("n" * bounds.NAME_CHARS_MAX, "k" * bounds.NAME_CHARS_MAX, "v" * bounds.VALUE_CHARS_MAX, None),
        ("n" * (bounds.NAME_CHARS_MAX + 1), "k", "v", "namespace"),
        ("n", "k" * (bounds.NAME_CHARS_MAX + 1), "v", "key"),
        ("n", "k", "v" * (bounds.VALUE_CHARS_MAX + 1), "value"),
        ("", "k", "v", "namespace"),
        ("n", "", "v", "key"),
        ("n", "k", "", None),
    ],
)
def test_lengths_are_bounded(namespace: str, key: str, value: str, names: str | None) -> None:
    answer = NameServerHarness().call(RequestCode.PUT_KV_CONFIG, namespace=namespace, key=key, value=value)
    assert (answer.code == 0) == (names is None)
    assert names is None or (answer.remark is not None and names in answer.remark)


def test_the_number_of_entries_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "ENTRIES_MAX", 2)
    table = KvTable(lambda: None)
    table.put("n", "a", "1")
    table.put("m", "a", "1")
    table.put("m", "a", "2")
    with pytest.raises(Refusal, match="number of entries"):
        table.put("m", "b", "1")
    table.delete("n", "a")
    table.put("m", "b", "1")


def test_the_size_of_all_entries_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "TOTAL_CHARS_MAX", 10)
    table = KvTable(lambda: None)
    table.put("n", "a", "x" * 9)
    with pytest.raises(Refusal, match="size of all"):
        table.put("n", "a", "x" * 10)
    table.put("n", "a", "x" * 3)
    table.put("n", "b", "x" * 5)
    table.delete("n", "a")
    table.put("n", "c", "x" * 3)
    assert dict(table.namespace("n") or {}) == {"b": "xxxxx", "c": "xxx"}


def test_order_topics_are_returned_with_the_registration() -> None:
    harness = NameServerHarness()
    assert harness.register().body == b""
    harness.call(RequestCode.PUT_KV_CONFIG, namespace="ORDER_TOPIC_CONFIG", key="T1", value="a:4")
    assert fastjson.loads(harness.register().body) == {"table": {"T1": "a:4"}}
    harness.ask(
        RemotingCommand(RequestCode.UPDATE_NAMESRV_CONFIG, {}, b"returnOrderTopicConfigToBroker=false\n")
    )
    assert harness.ask(register_request()).body == b""


def update(harness: NameServerHarness, text: str) -> RemotingCommand:
    return harness.ask(RemotingCommand(RequestCode.UPDATE_NAMESRV_CONFIG, {}, text.encode()))


def test_options_change_at_run_time() -> None:
    harness = NameServerHarness()
    assert update(harness, "enableAllTopicList=false\nscanNotActiveBrokerInterval=1000").code == 0
    assert harness.call(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER).remark == "disable"
    text = harness.call(RequestCode.GET_NAMESRV_CONFIG).body.decode()
    assert "enableAllTopicList=false\n" in text
    assert "scanNotActiveBrokerInterval=1000\n" in text
    assert text.splitlines() == sorted(text.splitlines())
    assert update(harness, "").code == 0


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        ("kvConfigPath=/x", ResponseCode.NO_PERMISSION, "Can not update config in black list."),
        ("configStorePath=/x", ResponseCode.NO_PERMISSION, "Can not update config in black list."),
        ("configBlackList=x", ResponseCode.NO_PERMISSION, "Can not update config in black list."),
        ("listenPort=1", ResponseCode.SYSTEM_ERROR, "listenPort"),
        ("bindAddress=0.0.0.0", ResponseCode.SYSTEM_ERROR, "bindAddress"),
        ("clusterTest=true", ResponseCode.SYSTEM_ERROR, "clusterTest"),
        ("nonsense=1", ResponseCode.SYSTEM_ERROR, "nonsense"),
        ("enableTopicList=yes", ResponseCode.SYSTEM_ERROR, "enableTopicList"),
        ("waitSecondsForService=3601", ResponseCode.SYSTEM_ERROR, "waitSecondsForService"),
        ("scanNotActiveBrokerInterval=99", ResponseCode.SYSTEM_ERROR, "scanNotActiveBrokerInterval"),
        ("no pair", ResponseCode.SYSTEM_ERROR, "no is not an option"),
        ("enableTopicLst=true", ResponseCode.SYSTEM_ERROR, "did you mean enableTopicList?"),
        ("broken=\\u12", ResponseCode.SYSTEM_ERROR, "properties"),
    ],
)
def test_fixed_options_are_refused_by_name_and_nothing_changes(text: str, code: int, says: str) -> None:
    harness = NameServerHarness()
    before = harness.call(RequestCode.GET_NAMESRV_CONFIG).body
    answer = update(harness, f"orderMessageEnable=true\n{text}")
    assert answer.code == code
    assert answer.remark is not None
    assert says in answer.remark
    assert harness.call(RequestCode.GET_NAMESRV_CONFIG).body == before


def test_an_option_may_be_set_to_its_value() -> None:
    assert update(NameServerHarness(), "listenPort=9876\nwaitSecondsForService=3600").code == 0


def test_given_options_are_checked() -> None:
    assert NamingOptions({"listenPort": "1"}).number("listenPort") == 1
    with pytest.raises(Refusal, match="nonsense"):
        NamingOptions({"nonsense": "1"})
    with pytest.raises(Refusal, match="enableTopicList"):
        NamingOptions({"enableTopicList": "1"})
