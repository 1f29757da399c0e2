"""Creates the broker's tables from the options and loads them from their files. Loop thread."""

from functools import partial
from pathlib import Path

from firearrow.broker.append.progress_journal import Journal, Kind
from firearrow.broker.base.clock import Clock
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


def make_tables(
    options: Options,
    clock: Clock,
    saver: TableSaver,
    journal: Journal,
) -> Tables:
    """StartError when a file cannot be read or written."""
    topics = _topics(options, clock)
    topics.listen(lambda _: saver.schedule("topics"))
    if options.is_slave:
        topics.version = DataVersion()  # of no master yet: every message is newer than such a file
    groups = (LmqGroupTable if options.lmq else GroupTable)(clock, auto_create=options.auto_create_groups)
    groups.listen(partial(saver.schedule, "groups"))
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
    )
    folder = Path(options.store_root) / "config"
    topics_loaded = saver.load("topics", ConfigFile(folder / "topics.json"), topics)
    saver.load("groups", ConfigFile(folder / "subscriptionGroup.json"), groups)
    offsets_name = "lmqConsumerOffset.json" if options.lmq else "consumerOffset.json"
    saver.load(
        "offsets",
        ConfigFile(folder / offsets_name),
        offsets,
        progress=True,
        periodic=True,
        pieces=offsets.pieces,
    )
    modes = RequestModes(changed=partial(saver.schedule, "modes"))
    saver.load("modes", ConfigFile(folder / "messageRequestMode.json"), modes, make=False)
    locks = RebalanceLocks(clock, changed=partial(saver.changed, "locks"))
    saver.load("locks", ConfigFile(folder / LOCKS_FILE), locks, make=False, periodic=True)
    deleted = DeletedTopics(offsets, clients, clock, changed=partial(saver.schedule, "deleted"))
    saver.load("deleted", ConfigFile(folder / "deletedTopics.json"), deleted, make=False)
    trimmed = TrimmedQueues(changed=partial(saver.schedule, "trimmed"))
    saver.load("trimmed", ConfigFile(folder / "trimmedQueues.json"), trimmed, make=False, progress=True)
    return Tables(topics, groups, offsets, clients, locks, modes, deleted, trimmed, topics_loaded)


def _topics(options: Options, clock: Clock) -> TopicTable:
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
    return (LmqTopicTable if options.lmq else TopicTable)(clock, settings)
