"""Options and Config: an Apache broker.conf is accepted; errors are named; some options change at run time."""

import logging
from pathlib import Path

import pytest

from firearrow.broker.base import properties
from firearrow.broker.base.config import Config, ConfigError, apache_keys, apply, from_file
from firearrow.broker.base.options import Options, options_by_key

OURS = {
    "maxTopicNums",
    "maxTopicQueueNums",
    "maxFilterCacheChars",
    "maxHalfMessagesWaiting",
    "maxHeldPulls",
    "maxConnectionBytes",
    "maxReplyBytesWaiting",
    "com.rocketmq.remoting.frameMaxLength",
    "fastPath",
    "fastSockets",
}


def test_our_keys_are_apaches_with_few_named_exceptions() -> None:
    assert set(options_by_key()) - apache_keys() == OURS


def test_defaults_are_apaches() -> None:
    pairs = Config(Options(broker_name="b")).properties()
    assert (pairs["flushDiskType"], pairs["mappedFileSizeCommitLog"], pairs["defaultTopicQueueNums"]) == (
        "ASYNC_FLUSH",
        "1073741824",
        "8",
    )
    assert (pairs["autoCreateTopicEnable"], pairs["maxMessageSize"]) == ("true", "4194304")


def test_an_apache_file_is_accepted_as_it_is(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "broker.conf"
    path.write_text(
        "# comment\nbrokerClusterName = DefaultCluster\nbrokerName=broker-a\nbrokerId=0\ndeleteWhen=04\n"
        "fileReservedTime=48\nbrokerRole=ASYNC_MASTER\nflushDiskType=SYNC_FLUSH\nnoSuchKey=1\n"
    )
    with caplog.at_level(logging.INFO):
        options = from_file(Options(), path)
    assert (options.broker_name, options.sync_flush) == ("broker-a", True)
    assert "these keys have no effect here: brokerRole\n" in caplog.text
    assert (options.reserved_hours, options.delete_hours) == (48, {4})
    assert "unknown key noSuchKey" in caplog.text


@pytest.mark.parametrize(
    ("key", "value", "fault"),
    [
        ("brokerId", "1", "brokerId must be 0 to 0, not 1"),
        ("listenPort", "x", "listenPort must be a whole number"),
        ("listenPort", "65536", "listenPort must be 0 to 65535"),
        ("traceOn", "yes", "traceOn must be true or false"),
        ("flushDiskType", "SYNC", "flushDiskType must be ASYNC_FLUSH or SYNC_FLUSH"),
        ("nonsense", "1", "nonsense is not an option"),
    ],
)
def test_a_bad_value_is_named(key: str, value: str, fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        apply(Options(), {key: value})


def test_a_slave_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("brokerRole=SLAVE\n")
    with pytest.raises(ConfigError, match="always a master"):
        from_file(Options(), path)


def test_changes_at_run_time_are_all_or_none_and_saved(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("brokerName=b\n")
    config = Config(Options(), path)
    notified: list[int] = []
    config.listen(lambda options: notified.append(options.flush_interval_ms))
    with pytest.raises(ConfigError, match="storePathRootDir cannot change while the broker runs"):
        config.update({"flushIntervalCommitLog": "400", "storePathRootDir": "/elsewhere"})
    assert config.options.flush_interval_ms == 500
    config.update({"flushIntervalCommitLog": "400"})
    assert (config.options.flush_interval_ms, notified) == (400, [500, 400])
    assert properties.parse(path.read_text()) == {"brokerName": "b", "flushIntervalCommitLog": "400"}


@pytest.mark.parametrize(
    "key", ["brokerName", "listenPort", "brokerIP1", "namesrvAddr", "storePathCommitLog", "flushDiskType"]
)
def test_identity_ports_and_paths_do_not_change_at_run_time(key: str) -> None:
    with pytest.raises(ConfigError, match=f"{key} cannot change"):
        Config(Options()).update({key: "1"})


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("a=1\n#x\n!y\n\n b : c=d \n", {"a": "1", "b": "c=d"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=x\\\ny", {"a": "xy"}),
        ("a=", {"a": ""}),
    ],
)
def test_properties_text(text: str, pairs: dict[str, str]) -> None:
    assert properties.parse(text) == pairs


def test_malformed_properties_text() -> None:
    with pytest.raises(ValueError, match="line 2 is not"):
        properties.parse("a=1\nnonsense")
    with pytest.raises(ValueError, match="at most 1048576"):
        properties.parse("a" * (1 << 20) + "=")
