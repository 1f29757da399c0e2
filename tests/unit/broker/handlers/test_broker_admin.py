"""Requests that only a master serves: limits of cold reads, read-ahead, other engines."""

import dataclasses

import orjson
import pytest

from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base.config import Config
from firearrow.broker.base.errors import Refusal
from firearrow.broker.base.options import Options
from firearrow.broker.handlers import broker_admin
from firearrow.broker.handlers.broker_admin import ColdReadsHandler, SingleBrokerHandler
from tests.support.peers import RecordedPeer


@pytest.fixture
def cold() -> ColdReadsHandler:
    return ColdReadsHandler()


def ask(
    handler: ColdReadsHandler | SingleBrokerHandler,
    code: int,
    ext: dict[str, str] | None = None,
    body: bytes = b"",
) -> RemotingCommand:
    answer = handler.routes()[code](RemotingCommand.request(code, ext, body), RecordedPeer())
    assert isinstance(answer, RemotingCommand)
    return answer


def limits(handler: ColdReadsHandler) -> object:
    return orjson.loads(ask(handler, RequestCode.GET_COLD_DATA_FLOW_CTR_INFO).body)["configTable"]


def test_limits_are_kept_returned_and_removed(cold: ColdReadsHandler) -> None:
    ask(cold, RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, body=b"one=5\ntwo=0\n")
    ask(cold, RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, body=b"one=6")
    assert limits(cold) == {"one": 6, "two": 0}
    ask(cold, RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG, body=b"one")
    ask(cold, RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG, body=b"unknown")
    assert limits(cold) == {"two": 0}


@pytest.mark.parametrize(
    "body", [b"a=-1", b"a=x", b"a=", b"a=9223372036854775808", b"a b=1", b"a", b"\xff=1"]
)
def test_bad_limits_are_refused_as_a_whole(cold: ColdReadsHandler, body: bytes) -> None:
    with pytest.raises(Refusal) as caught:
        ask(cold, RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, body=b"good=1\n" + body)
    assert caught.value.code == ResponseCode.INVALID_PARAMETER
    assert limits(cold) == {}


def test_limits_are_bounded(cold: ColdReadsHandler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_admin, "GROUPS_MAX", 2)
    ask(cold, RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, body=b"a=1\nb=1")
    ask(cold, RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, body=b"a=2")
    with pytest.raises(Refusal, match="more than 2 groups"):
        ask(cold, RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, body=b"c=1")
    assert limits(cold) == {"a": 2, "b": 1}


def test_the_log_is_read_ahead(cold: ColdReadsHandler) -> None:
    done = ask(cold, RequestCode.SET_COMMITLOG_READ_MODE, {"READ_AHEAD_MODE": "0"})
    assert (done.code, done.remark) == (0, "set commitlog readahead mode success, mode: 0")
    for mode, code in (("1", ResponseCode.SYSTEM_ERROR), ("7", ResponseCode.INVALID_PARAMETER)):
        with pytest.raises(Refusal) as caught:
            ask(cold, RequestCode.SET_COMMITLOG_READ_MODE, {"READ_AHEAD_MODE": mode})
        assert caught.value.code == code


@pytest.mark.parametrize(
    ("enabled", "engine", "remark"),
    [
        (False, "F", "broker timerWheelEnable is false"),
        (True, "R", "timerRocksDBEnable must be configured true when broker start"),
        (True, "X", "param error"),
    ],
)
def test_other_timer_engines_are_refused(enabled: bool, engine: str, remark: str) -> None:
    config = Config(dataclasses.replace(Options(), timer_topic=enabled))
    with pytest.raises(Refusal, match=remark) as caught:
        ask(SingleBrokerHandler(config), RequestCode.SWITCH_TIMER_ENGINE, {"E_T": engine})
    assert caught.value.code == ResponseCode.INVALID_PARAMETER


def test_requests_that_only_a_master_serves() -> None:
    handler = SingleBrokerHandler(Config(Options()))
    assert ask(handler, RequestCode.SWITCH_TIMER_ENGINE, {"E_T": "F"}).remark == "switch timer engine success"
    assert ask(handler, RequestCode.RESET_MASTER_FLUSH_OFFSET, {"masterFlushOffset": "5"}).code == 0
    assert ask(handler, RequestCode.POP_ROLLBACK).code == 0
    with pytest.raises(Refusal, match="only for controllerMode"):
        ask(handler, RequestCode.GET_BROKER_EPOCH_CACHE)
