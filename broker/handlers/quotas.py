"""Quotas: UPDATE_QUOTA (30013) sets and removes them, GET_QUOTAS (30014) lists them with their use. Loop thread."""

import asyncio
import time
from typing import Any

import orjson

from firearrow._native.protocol.fastjson import loads_body
from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.auth.audit_log import AuditLog, audit_change
from firearrow.broker.base.errors import Refusal
from firearrow.broker.base.peer import Peer, Routes
from firearrow.broker.quotas.quota_check import KINDS, QuotaCheck
from firearrow.broker.quotas.quota_table import (
    CONNECTIONS,
    EVERY,
    RATES,
    USER,
    VALUE_MAX,
    Entity,
    InvalidQuota,
)
from firearrow.broker.tables import json_fields
from firearrow.broker.tables.paging import limit_of

BODY_BYTES_MAX = 4096
SLICE = 256


class QuotasHandler:
    def __init__(self, quotas: QuotaCheck, audit: AuditLog | None) -> None:
        self._quotas = quotas
        self._audit = audit

    def routes(self) -> Routes:
        return {RequestCode.UPDATE_QUOTA: self.update, RequestCode.GET_QUOTAS: self.list_quotas}

    def update(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        """The body's members are quotas: a number sets one, null removes it. The answer: all that the entity has."""
        entity = Entity(request.text("entity"), request.text("name"))
        try:
            of = json_fields.members(loads_body(request.body, BODY_BYTES_MAX), "the body")
            changes = {
                str(member): None
                if of[member] is None
                else json_fields.number(of, member, low=1, high=VALUE_MAX)
                for member in of
            }
            now = self._quotas.table.update(entity, changes)
        except (InvalidQuota, ValueError) as error:
            raise Refusal(ResponseCode.INVALID_PARAMETER, str(error)) from None
        self._quotas.configure()
        audit_change(
            self._audit, request, peer, "updateQuota", entity=entity.kind, name=entity.name, quotas=dict(now)
        )
        return request.answer(body=orjson.dumps({"entity": entity.kind, "name": entity.name, **now}))

    async def list_quotas(self, request: RemotingCommand, peer: Peer) -> RemotingCommand:
        """Those that were set, and those who use a default now, from number `begin` on; `used`: in the last second."""
        limit, found = limit_of(request), list[dict[str, Any]]()
        begin = max(request.integer_or("begin", 0, 32), 0)
        active = self._active()
        rows = [(*entity, False, dict(quotas)) for entity, quotas in self._quotas.table]
        rows += [(*key, True, row["quotas"]) for key, row in sorted(active.items()) if row["byDefault"]]
        for number, (kind, name, by_default, quotas) in enumerate(rows[begin : begin + limit]):
            if number % SLICE == SLICE - 1:
                await asyncio.sleep(0)
            use = active.get((kind, name), {})
            used = dict(use.get("used", {}))
            if kind == USER and name != EVERY and CONNECTIONS in quotas:
                used[CONNECTIONS] = self._quotas.connections(name)
            counts = {"used": used, "delayed": use.get("delayed", 0), "refused": use.get("refused", 0)}
            found.append({"entity": kind, "name": name, "byDefault": by_default, "quotas": quotas} | counts)
        listed = {"quotas": found, "more": len(rows) > begin + limit, "total": len(rows)}
        return request.answer(body=orjson.dumps(listed))

    def _active(self) -> dict[tuple[str, str], dict[str, Any]]:
        """What those who send and read have used."""
        now = time.monotonic()
        return {
            (kind, entity.name): {
                "byDefault": entity.by_default,
                "quotas": {
                    member: int(rate) for member, rate in zip(RATES, entity.rates(), strict=True) if rate
                },
                "used": {
                    member: used
                    for member, used, rate in zip(RATES, entity.used(now), entity.rates(), strict=True)
                    if rate
                },
                "delayed": entity.delayed,
                "refused": entity.refused,
            }
            for number, kind in enumerate(KINDS)
            for entity in self._quotas.quotas.listed(number)
        }
