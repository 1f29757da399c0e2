"""Limits of cold reads (2001 to 2003) and the read-ahead of the log (2004). The limits are kept and told, as by an
Apache broker whose coldDataFlowControlEnable is false: they hold nobody up. Loop thread.
"""

import orjson

from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.base import properties
from firearrow.broker.base.errors import Refusal
from firearrow.broker.base.peer import Peer, Routes
from firearrow.broker.tables import json_fields
from firearrow.broker.tables.name_rules import group_fault

GROUPS_MAX = 10_000
GROUP_BYTES, BROKER_BYTES = 3 << 20, 100 << 20
"""Apache's defaults of cgColdReadThreshold and globalColdReadThreshold."""
READ_AHEAD, RANDOM = 0, 1


class ColdReadsHandler:
    """Limits are bytes per group; like Apache's they are gone after a restart."""

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
            pairs = properties.parse(request.body.decode())
        except ValueError as error:
            remark = f"the body is no properties text: {error}"
            raise Refusal(ResponseCode.INVALID_PARAMETER, remark) from None
        limits = {group: _limit(group, text) for group, text in pairs.items()}
        if len(self._limits.keys() | limits.keys()) > GROUPS_MAX:
            raise Refusal(ResponseCode.INVALID_PARAMETER, f"limits of more than {GROUPS_MAX} groups")
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
        """Reading ahead is what the system does by itself, and all that is offered."""
        mode = request.integer("READ_AHEAD_MODE", 32)
        if mode not in (READ_AHEAD, RANDOM):
            raise Refusal(ResponseCode.INVALID_PARAMETER, "set commitlog readahead mode param value error")
        if mode == RANDOM:
            remark = (
                "set commitlog readahead mode failed: READ_AHEAD_MODE 1 is not offered, the log is read ahead"
            )
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
        return request.answer(remark=f"set commitlog readahead mode success, mode: {mode}")


def _limit(group: str, text: str) -> int:
    fault = group_fault(group)
    if fault is not None:
        raise Refusal(ResponseCode.INVALID_PARAMETER, fault)
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= json_fields.LONG_MAX):
        remark = f"the limit of group {group} is no number of bytes: {text[:40]!r}"
        raise Refusal(ResponseCode.INVALID_PARAMETER, remark)
    return int(text)
