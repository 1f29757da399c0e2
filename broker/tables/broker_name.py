"""The name of the broker that a store belongs to: its cluster, brokerName and brokerId; `config/brokerName.json`.

Clients know queues by their broker's name. Without the option `brokerName` a store keeps the name that it had, since a
host's name may change with each container. A backup or copy of a store has its name; a slave's store has its own
record. Loop thread.
"""

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from firearrow._native.protocol import fastjson
from firearrow.broker.base.options import Options, host_name
from firearrow.broker.tables import json_fields
from firearrow.broker.tables.config_file import ConfigFile

log = logging.getLogger("firearrow.app")

FILE_NAME = "brokerName.json"
NAME_BYTES_MAX = 255


class StoreOwner(NamedTuple):
    """The broker under which a store was opened last."""

    cluster: str
    name: str
    id: int


def owner_of(store_root: str) -> StoreOwner | None:
    """None: the store is new, or no version that has this file has opened it. StartError: it cannot be read."""
    found: list[StoreOwner] = []
    _file(store_root).load(lambda text: found.append(_parsed(text)))
    return found[-1] if found else None


def named(options: Options) -> Options:
    """The options with a brokerName: the store's, else the host's, if there is none. StartError."""
    if options.broker_name:
        return options
    owner, host = owner_of(options.store_root), host_name()
    if owner is not None and owner.name != host:
        log.warning(
            "the store %s keeps its brokerName %s, although this host is %s: set brokerName, or if this is a copy of "
            "the store of a broker that runs, set another one",
            options.store_root,
            owner.name,
            host,
        )
    return replace(options, broker_name=host if owner is None else owner.name)


def remember(options: Options) -> None:
    """Under which broker the store is opened now; the log states what another one means. The store is locked."""
    before, now = (
        owner_of(options.store_root),
        StoreOwner(options.cluster_name, options.broker_name, options.broker_id),
    )
    if now == before:
        return
    if before is not None:
        _warn(before, now)
    members = {"brokerClusterName": now.cluster, "brokerId": now.id, "brokerName": now.name}
    try:
        _file(options.store_root).write(json.dumps(members).encode())
    except OSError as error:
        log.error("the store cannot remember its brokerName %s: %s", now.name, error)


def _warn(before: StoreOwner, now: StoreOwner) -> None:
    if now.name != before.name:
        log.warning(
            "this store belonged to the broker %s and is opened as %s: clients know its queues by the broker's name, "
            "so broadcasting consumers lose their offsets, and recall handles, receipt handles, static topics and "
            "slaves of %s do not find it; set brokerName=%s unless that is intended",
            before.name,
            now.name,
            before.name,
            before.name,
        )
    if now.cluster != before.cluster:
        log.warning(
            "this store belonged to the cluster %s and is opened in %s: the topics that the cluster names (its own, "
            "replies, revive) are new ones, and messages in those of %s wait; set brokerClusterName=%s unless that is "
            "intended",
            before.cluster,
            now.cluster,
            before.cluster,
            before.cluster,
        )
    if min(now.id, before.id) > 0 and now.id != before.id:
        log.info(
            "this store belonged to the slave with brokerId %d and is opened with %d: its master and the name servers "
            "list the old one until it times out",
            before.id,
            now.id,
        )


def _parsed(text: bytes) -> StoreOwner:
    """ValueError."""
    value = fastjson.loads(text)
    if not isinstance(value, dict):
        raise ValueError("it is not an object")
    names = [value.get(key) for key in ("brokerClusterName", "brokerName")]
    for name in names:
        if (
            not isinstance(name, str)
            or not name.isprintable()
            or not 0 < len(name.encode()) <= NAME_BYTES_MAX
        ):
            raise ValueError(f"{str(name)[:40]!r} is not the name of a broker or cluster")
    return StoreOwner(
        str(names[0]), str(names[1]), json_fields.number(value, "brokerId", 0, low=0, high=(1 << 63) - 1)
    )


def _file(store_root: str) -> ConfigFile:
    return ConfigFile(Path(store_root) / "config" / FILE_NAME)
