"""Administration of the broker: runtime info, config, statistics, and requests for features it does not have.

- `InspectionHandler`: runtime info (28), config (25, 26), statistics (315).
- `SingleBrokerHandler`: requests to a slave, or to a broker with a controller (908, 1007), or with pops and timers
  in RocksDB (200056, 5001). Changes nothing.
- `ColdReadsHandler`: limits of cold reads (2001 to 2003) and the read-ahead of the log (2004). The limits are
  stored and returned, but not applied, as by an Apache broker with coldDataFlowControlEnable=false.

Loop thread.
"""

import os
import shutil
from collections.abc import Callable, Sequence

import orjson

from firearrow._native.protocol.name_rules import group_fault
from firearrow._native.store.message_store import MessageStore
from firearrow._native.wire.codes import PROTOCOL_VERSION, RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base import properties
from firearrow.broker.base.clock import Clock
from firearrow.broker.base.config import Config, ConfigError
from firearrow.broker.base.disk_space import measured
from firearrow.broker.base.errors import Refusal
from firearrow.broker.base.peer import Peer, Routes
from firearrow.broker.base.stats import Stats, Window
from firearrow.broker.tables import json_fields

VERSION_DESC = f"V5_{(PROTOCOL_VERSION - 413) // 20}_{(PROTOCOL_VERSION - 413) % 20 // 2}"

QUEUES = {
    f"{kind}ThreadPoolQueue{what}": "0"
    for kind in ("send", "pull", "litePull", "query", "ack")
    for what in ("Size", "HeadWaitTimeMills")
} | {"EndTransactionQueueSize": "0"}
"""Requests that wait for a thread: always 0, because tools print missing members as null."""


class InspectionHandler:
    """`parts` return further entries of the runtime info."""

    def __init__(
        self,
        store: MessageStore,
        config: Config,
        clock: Clock,
        stats: Stats,
        parts: Sequence[Callable[[], dict[str, str]]],
    ) -> None:
        self._store = store
        self._config = config
        self._clock = clock
        self._stats = stats
        self._parts = parts
        self._version = {"counter": 0, "stateVersion": 0, "timestamp": clock.now_ms()}

    def routes(self) -> Routes:
        return {
            RequestCode.GET_BROKER_RUNTIME_INFO: self.runtime_info,
            RequestCode.GET_BROKER_CONFIG: self.get_config,
            RequestCode.UPDATE_BROKER_CONFIG: self.update_config,
            RequestCode.VIEW_BROKER_STATS_DATA: self.view_stats,
        }

    def get_config(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        body = properties.format(dict(sorted(self._config.properties().items()))).encode()
        return request.answer(ext={"version": orjson.dumps(self._version).decode()}, body=body)

    def update_config(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        try:
            pairs = properties.parse(request.body)
        except ValueError as error:
            raise Refusal(
                ResponseCode.INVALID_PARAMETER, f"the body is not in properties format: {error}"
            ) from None
        if any(key in self._config.options.config_black_list.split(";") for key in pairs):
            raise Refusal(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
        try:
            self._config.update(pairs)
        except ConfigError as error:
            raise Refusal(ResponseCode.INVALID_PARAMETER, str(error)) from None
        self._version["counter"] += 1
        self._version["timestamp"] = self._clock.now_ms()
        return request.answer()

    def view_stats(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        name, key = request.text("statsName"), request.text("statsKey")
        windows = self._stats.view(name, key)
        if windows is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"The stats <{name}> <{key}> not exist")
        minute, hour, day = (_window(window) for window in windows)
        return request.answer(body=orjson.dumps({"statsDay": day, "statsHour": hour, "statsMinute": minute}))

    def runtime_info(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        table = {**self._totals(), **self._rates(), **self._disk(), **self._log(), **QUEUES}
        for part in self._parts:
            table |= part()
        return request.answer(body=orjson.dumps({"table": table}))

    def _totals(self) -> dict[str, str]:
        stats = self._stats
        stats.gather()
        (put_yesterday, got_yesterday), (put_today, got_today) = stats.mornings
        return {
            "brokerVersionDesc": VERSION_DESC,
            "brokerActive": "true",
            "bootTimestamp": str(stats.started_ms),
            "runtime": _runtime(self._clock.now_ms() - stats.started_ms),
            "msgPutTotalYesterdayMorning": str(put_yesterday),
            "msgPutTotalTodayMorning": str(put_today),
            "msgPutTotalTodayNow": str(stats.put_times),
            "msgGetTotalYesterdayMorning": str(got_yesterday),
            "msgGetTotalTodayMorning": str(got_today),
            "msgGetTotalTodayNow": str(stats.get_transferred),
            "putMessageTimesTotal": str(stats.put_times),
            "putMessageFailedTimes": str(stats.put_failed),
            "putMessageSizeTotal": str(stats.put_bytes),
            "putMessageAverageSize": str(stats.put_bytes / stats.put_times if stats.put_times else 0.0),
            "startAcceptSendRequestTimeStamp": str(self._config.options.accept_sends_from_ms),
        }

    def _rates(self) -> dict[str, str]:
        spans = [self._stats.rates(seconds) for seconds in (10, 60, 600)]

        def of(name: str) -> str:
            return " ".join(str(getattr(span, name) * 1000 / span.at_ms) for span in spans)

        return {
            "putTps": of("put"),
            "getFoundTps": of("found"),
            "getMissTps": of("missed"),
            "getTransferredTps": of("transferred"),
            "getTotalTps": " ".join(str((span.found + span.missed) * 1000 / span.at_ms) for span in spans),
        }

    def _disk(self) -> dict[str, str]:
        options = self._config.options
        folder = options.commitlog_path or os.path.join(options.store_root, "commitlog")
        log, use = shutil.disk_usage(folder), measured(folder, options.store_root)
        return {
            "commitLogDiskRatio": str(use.log),
            f"commitLogDiskRatio_{folder}": str(use.log),
            "consumeQueueDiskRatio": str(use.queues),
            "commitLogDirCapacity": f"Total : {_size(log.total)}, Free : {_size(log.free)}.",
        }

    def _log(self) -> dict[str, str]:
        store = self._store
        return {
            "commitLogMinOffset": str(store.min_physical),
            "commitLogMaxOffset": str(store.written),
            "remainHowManyDataToFlush": _size(store.written - store.flushed),
            "dispatchBehindBytes": "0",
            "earliestMessageTimeStamp": str(store.reader.earliest_store_time()),
            "pageCacheLockTimeMills": "0",
        }


def _window(window: Window) -> dict[str, float]:
    return {"avgpt": window.avgpt, "sum": window.sum, "tps": window.tps}


def _runtime(ms: int) -> str:
    minutes, seconds = divmod(ms // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"


def _size(size: float) -> str:
    """Format bytes as Java's UtilAll does."""
    if size < 1024:
        return f"{size:.0f} B"
    for unit in ("KiB", "MiB", "GiB"):
        size /= 1024
        if size < 1024:
            return f"{size:.1f} {unit}"
    return f"{size / 1024:.1f} TiB"


ENGINE, FILE_WHEEL, ROCKSDB = "E_T", "F", "R"


class SingleBrokerHandler:
    """`epochs()`: the body that states which epochs the log has, under controllers."""

    def __init__(self, config: Config, epochs: Callable[[], bytes] | None = None) -> None:
        self._config = config
        self._epochs = epochs

    def routes(self) -> Routes:
        return {
            RequestCode.RESET_MASTER_FLUSH_OFFSET: self.done,
            RequestCode.GET_BROKER_EPOCH_CACHE: self.epoch_cache,
            RequestCode.POP_ROLLBACK: self.done,
            RequestCode.SWITCH_TIMER_ENGINE: self.switch_engine,
        }

    def done(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        """Nothing to do: a master sets its own flush offset, and its pops are in the log already."""
        return request.answer()

    def epoch_cache(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        if self._epochs is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "this request only for controllerMode ")
        return request.answer(body=self._epochs())

    def switch_engine(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        """The wheel in files is the only engine: a switch to it does nothing."""
        if not self._config.options.timer_topic:
            raise Refusal(ResponseCode.INVALID_PARAMETER, "broker timerWheelEnable is false")
        engine = request.text_or(ENGINE, "")
        if engine == ROCKSDB:
            remark = "timerRocksDBEnable must be configured true when broker start"
            raise Refusal(ResponseCode.INVALID_PARAMETER, remark)
        if engine != FILE_WHEEL:
            raise Refusal(ResponseCode.INVALID_PARAMETER, "param error")
        return request.answer(remark="switch timer engine success")


GROUPS_MAX = 10_000
GROUP_BYTES, BROKER_BYTES = 3 << 20, 100 << 20
"""Apache's defaults of cgColdReadThreshold and globalColdReadThreshold."""
READ_AHEAD, RANDOM = 0, 1


class ColdReadsHandler:
    """Limits are in bytes per group; like Apache's they are lost at a restart."""

    def __init__(self) -> None:
        self._limits: dict[str, int] = {}

    def routes(self) -> Routes:
        return {
            RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG: self.update,
            RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG: self.remove,
            RequestCode.GET_COLD_DATA_FLOW_CTR_INFO: self.info,
            RequestCode.SET_COMMITLOG_READ_MODE: self.read_mode,
        }

    def update(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        try:
            pairs = properties.parse(request.body)
        except ValueError as error:
            remark = f"the body is not in properties format: {error}"
            raise Refusal(ResponseCode.INVALID_PARAMETER, remark) from None
        limits = {group: _limit(group, text) for group, text in pairs.items()}
        if len(self._limits.keys() | limits.keys()) > GROUPS_MAX:
            raise Refusal(ResponseCode.INVALID_PARAMETER, f"limits for more than {GROUPS_MAX} groups")
        self._limits |= limits
        return request.answer()

    def remove(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        self._limits.pop(request.body.decode(errors="replace"), None)
        return request.answer()

    def info(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        body = {
            "runtimeTable": {},
            "configTable": self._limits,
            "cgColdReadThreshold": GROUP_BYTES,
            "globalColdReadThreshold": BROKER_BYTES,
            "globalAcc": 0,
        }
        return request.answer(body=orjson.dumps(body))

    def read_mode(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        """Only read-ahead, which the system does by itself, is supported."""
        mode = request.integer("READ_AHEAD_MODE", 32)
        if mode not in (READ_AHEAD, RANDOM):
            raise Refusal(ResponseCode.INVALID_PARAMETER, "set commitlog readahead mode param value error")
        if mode == RANDOM:
            remark = "set commitlog readahead mode failed: READ_AHEAD_MODE 1 is not supported, only 0"
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
        return request.answer(remark=f"set commitlog readahead mode success, mode: {mode}")


def _limit(group: str, text: str) -> int:
    fault = group_fault(group)
    if fault is not None:
        raise Refusal(ResponseCode.INVALID_PARAMETER, fault)
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= json_fields.LONG_MAX):
        remark = f"the limit of group {group} must be a number of bytes, not {text[:40]!r}"
        raise Refusal(ResponseCode.INVALID_PARAMETER, remark)
    return int(text)
