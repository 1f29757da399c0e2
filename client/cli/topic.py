"""Topics: list, show, create, set, delete, purge and trim them."""

from collections.abc import Sequence

from firearrow.client.base.names import is_system_topic
from firearrow.client.cli.command import Call, Command
from firearrow.client.cli.output import Column, Kind

QUEUE_COLUMNS = (
    Column("broker", "BROKER"),
    Column("queue", "QUEUE", Kind.COUNT),
    Column("minOffset", "FIRST", Kind.COUNT),
    Column("maxOffset", "NEXT", Kind.COUNT),
    Column("messages", "MESSAGES", Kind.COUNT),
    Column("lastMs", "LAST MESSAGE", Kind.TIME),
)


def main(arguments: Sequence[str]) -> int:
    command = Command("topic", __doc__)
    verb = command.verb(
        "list", list_topics, "the topics of all brokers", example="firearrow topic list --all"
    )
    verb.argument("--all", action="store_true", help="system, retry and dead letter topics as well")
    verb = command.verb("show", show, "a topic's queues", example="firearrow topic show orders")
    verb.argument("topic")
    return command.run(arguments)


async def list_topics(call: Call) -> None:
    admin = await call.admin()
    names = sorted(name for name in await admin.topics() if call.arguments.all or not is_system_topic(name))
    call.output.rows([Column("topic", "TOPIC")], ({"topic": name} for name in names))


async def show(call: Call) -> None:
    admin = await call.admin()
    stats = await admin.topic_stats(call.arguments.topic)
    call.output.rows(
        QUEUE_COLUMNS,
        (
            {
                "topic": queue.topic,
                "broker": queue.broker_name,
                "queue": queue.queue_id,
                "minOffset": found.min_offset,
                "maxOffset": found.max_offset,
                "messages": found.max_offset - found.min_offset,
                "lastMs": found.last_ms,
            }
            for queue, found in sorted(stats.items())
        ),
    )
