"""Creates the broker's tables from the options and loads them from their files. Loop thread."""

from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import Protocol

from firearrow.broker.append.progress_journal import Journal, Kind
from firearrow.broker.base.clock import Clock
from firearrow.broker.base.errors import StartError
from firearrow.broker.base.options import Options
from firearrow.broker.context.broker_context import Tables
from firearrow.broker.services.table_saver import TableSaver
from firearrow.broker.tables.clients import ClientTable
from firearrow.broker.tables.config_file import ConfigFile
from firearrow.broker.tables.dataversion import DataVersion
from firearrow.broker.tables.deleted_topics import DeletedTopics
from firearrow.broker.tables.groups import GroupTable
from firearrow.broker.tables.lmq import LmqGroupTable, LmqTopicTable
from firearrow.broker.tables.locks import FILE_NAME as LOCKS_FILE
from firearrow.broker.tables.locks import RebalanceLocks
from firearrow.broker.tables.offsets import ConsumerOffsets
from firearrow.broker.tables.request_modes import RequestModes
from firearrow.broker.tables.topics import TopicSettings, TopicTable
from firearrow.broker.tables.trimmed_queues import TrimmedQueues


class ConfigTable(Protocol):
    """A table that a config file stores."""

    def to_json(self) -> bytes: ...
    def load(self, text: bytes) -> None: ...


def make_tables(
    options: Options,
    clock: Clock,
    saver: TableSaver,
    journal: Journal,
    topics_changed: Callable[[Collection[str]], None],
    subscriptions_changed: Callable[[], None],
) -> Tables:
    """`subscriptions_changed()` is called when a group or its subscriptions change.

    StartError when a file cannot be read or written.
    """
    topics = _topics(options, clock, topics_changed)
    if options.is_slave:
        topics.version = DataVersion()  # of no master yet: every message is newer than such a file

    def groups_changed(_: Collection[str]) -> None:
        saver.schedule("groups")
        subscriptions_changed()

    groups = (LmqGroupTable if options.lmq else GroupTable)(
        clock, auto_create=options.auto_create_groups, changed=groups_changed
    )
    offsets = ConsumerOffsets(
        clock,
        version_step=options.offsets_version_step,
        changed=lambda _: saver.changed("offsets"),
        on_commit=partial(journal.note, Kind.OFFSET),
        is_lmq_enabled=options.lmq,
    )
    clients = ClientTable(
        clock,
        channel_expired_ms=options.channel_expired_ms,
        subscription_expired_ms=options.subscription_expired_ms,
        subscribed=subscriptions_changed,
    )
    folder = Path(options.store_root) / "config"
    topics_loaded = load(saver, "topics", folder / "topics.json", topics)
    load(saver, "groups", folder / "subscriptionGroup.json", groups)
    offsets_name = "lmqConsumerOffset.json" if options.lmq else "consumerOffset.json"
    load(saver, "offsets", folder / offsets_name, offsets, progress=True)
    modes = RequestModes(changed=lambda: saver.schedule("modes"))
    load(saver, "modes", folder / "messageRequestMode.json", modes, make=False)
    locks = RebalanceLocks(clock, changed=lambda: saver.changed("locks"))
    load(saver, "locks", folder / LOCKS_FILE, locks, make=False)
    deleted = DeletedTopics(offsets, clients, clock, changed=lambda: saver.schedule("deleted"))
    load(saver, "deleted", folder / "deletedTopics.json", deleted, make=False)
    trimmed = TrimmedQueues(changed=lambda: saver.schedule("trimmed"))
    load(saver, "trimmed", folder / "trimmedQueues.json", trimmed, make=False, progress=True)
    return Tables(topics, groups, offsets, clients, locks, modes, deleted, trimmed, topics_loaded)


def load(
    saver: TableSaver,
    name: str,
    path: Path,
    table: ConfigTable,
    *,
    make: bool = True,
    progress: bool = False,
    strict: bool = False,
) -> bool:
    """Load the table from its file and register it with `saver` under `name`. False if nothing was loaded, or
    an older state than the last one written.

    `make`: write the file at once if there was nothing to load. `progress`: the file states how far the log
    was processed, so log and journal are synced before it is written. `strict`: the file of rules (ConfigFile).
    StartError.
    """
    file = ConfigFile(path, strict=strict)
    try:
        loaded = file.load(table.load)
        if (make and not loaded) or (loaded and file.is_older):
            file.write(table.to_json())
    except OSError as error:
        raise StartError(
            f"cannot open the store {path.parent.parent} ({error.filename or path}: "
            f"{error.strerror or error}): "
            "free disk space, set its permissions, or choose another folder with --store"
        ) from None

    def save() -> None:
        text = table.to_json()
        if progress:
            saver.sync_to_disk()
        file.write(text)

    saver.add(name, save)
    return loaded and not file.is_older


def _topics(options: Options, clock: Clock, changed: Callable[[Collection[str]], None]) -> TopicTable:
    settings = TopicSettings(
        cluster=options.cluster_name,
        broker=options.broker_name,
        auto_create=options.auto_create_topics,
        default_queues=options.default_queues,
        cluster_topic=options.cluster_topic,
        broker_topic=options.broker_topic,
        trace_topic=options.trace_topic,
        trace_topic_name=options.trace_topic_name,
        timer_topic=options.timer_topic,
        revive_queues=options.revive_queues,
        topics_max=options.topics_max,
        queues_max=options.topic_queues_max,
    )
    return (LmqTopicTable if options.lmq else TopicTable)(clock, settings, changed)
