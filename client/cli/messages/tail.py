"""Show messages of topics as they arrive, like `tail -f`."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Sequence

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow.client.base.errors import ConfigError
from firearrow.client.cli.command import Call, Command, count
from firearrow.client.cli.messages.message_view import Wanted, decode_by, pattern, printer
from firearrow.client.cli.messages.queue_reader import From, Start, TopicReader, last_of

TOPICS_MAX = 100
ARRIVED_MAX = 256


def declared() -> Command:
    """The command with its verbs."""
    command = Command("tail", __doc__)
    verb = command.only(tail)
    verb.argument("topics", nargs="+", metavar="TOPIC")
    verb.argument(
        "--from",
        dest="start",
        default="end",
        metavar="PLACE",
        help="where to start: start, end (default), -10 (the last ten), -15m, a time or an offset",
    )
    verb.argument("--tag", metavar="TAG", help="only messages with these tags: a or 'a || b'")
    verb.argument(
        "--sql", metavar="EXPR", help="only messages that this SQL92 expression selects, at the brokers"
    )
    verb.argument("--key", help="only messages with this key")
    verb.argument("--grep", metavar="REGEX", help="only bodies that match this regular expression")
    decode_by(verb)
    verb.argument(
        "--format", metavar="TEMPLATE", help=r"template of a line, such as '{time} {queueId}:{offset} {body}'"
    )
    verb.argument("-n", "--count", type=count, metavar="COUNT", help="end after COUNT messages")
    verb.argument("-e", "--no-follow", action="store_true", help="end after the messages that are stored now")
    return command


def main(arguments: Sequence[str]) -> int:
    return declared().run(arguments)


async def tail(call: Call) -> None:
    """Show the messages of topics as they arrive, like `tail -f`. It reads without a consumer group, so that no
    offset of a group changes.

        firearrow tail orders --from -10 --tag new --grep 'id.*42'
        firearrow tail orders payments --from -15m --no-follow
    """
    given = call.arguments
    if len(given.topics) > TOPICS_MAX:
        raise ConfigError(f"{len(given.topics)} topics: at most {TOPICS_MAX} can be read at a time")
    start = Start.parse(given.start)
    since_ms = start.value if start.kind is From.TIME else 0
    keys = frozenset() if given.key is None else frozenset([given.key])
    wanted = Wanted(keys=keys, grep=pattern(given.grep), since_ms=since_ms)
    show = printer(call.output, given.decode, given.format)
    left = given.count
    async with contextlib.aclosing(messages_of(call, start)) as messages:
        async for message in messages:
            if not wanted(message):
                continue
            show(message)
            call.output.flush()
            if left is not None:
                left -= 1
                if left == 0:
                    return


async def messages_of(call: Call, start: Start) -> AsyncGenerator[ReceivedMessage, None]:
    """The messages of all topics: what is stored by time, topic by topic if there are several; then what comes."""
    given = call.arguments
    admin = await call.admin()
    readers = [
        TopicReader(admin, topic, tags=given.tag, sql=given.sql, failed=call.output.note)
        for topic in dict.fromkeys(given.topics)
    ]
    spans = [await reader.spans(start) for reader in readers]
    for reader, stored in zip(readers, spans, strict=True):
        async with contextlib.aclosing(reader.stored(stored)) as found:
            if start.kind is From.LAST:
                for message in await last_of(found, start.value):
                    yield message
                continue
            async for message in found:
                yield message
    if given.no_follow:
        return
    followed = [
        lambda reader=reader, stored=stored: reader.coming(stored)
        for reader, stored in zip(readers, spans, strict=True)
    ]
    async with contextlib.aclosing(_together(followed)) as coming:
        async for message in coming:
            yield message


async def _together(
    sources: Sequence[Callable[[], AsyncGenerator[ReceivedMessage, None]]],
) -> AsyncGenerator[ReceivedMessage, None]:
    """The messages of several endless sources as they come."""
    arrived: asyncio.Queue[ReceivedMessage] = asyncio.Queue(ARRIVED_MAX)

    async def read(source: Callable[[], AsyncGenerator[ReceivedMessage, None]]) -> None:
        async with contextlib.aclosing(source()) as messages:
            async for message in messages:
                await arrived.put(message)

    tasks = [asyncio.create_task(read(source)) for source in sources]
    try:
        while True:
            yield await arrived.get()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
