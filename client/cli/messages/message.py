"""Find messages, show what happened to one, send one again."""

import contextlib
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from firearrow._native.store.log.received_message import ReceivedMessage
from firearrow._native.wire.codes import ResponseCode
from firearrow.client.admin_api.cluster_admin import Operations
from firearrow.client.admin_api.message_queries import MessageQueries, decode_offset_id
from firearrow.client.base.errors import ClientError, ConfigError, TransportError
from firearrow.client.base.times import time_ms
from firearrow.client.cli.command import FOUND_TROUBLE, OK, Call, Command, Verb, count
from firearrow.client.cli.messages.message_view import (
    Wanted,
    decode_by,
    pattern,
    print_message,
    print_messages,
    tags_of,
)
from firearrow.client.cli.output import Column, Kind, red_if, titled

LIMIT, LIMIT_MAX = 64, 100_000
PATH_COLUMNS = (
    Column("atMs", "TIME", Kind.TIME),
    Column("step", "STEP", colour=red_if("trouble")),
    *titled("group", "where", "detail"),
)


def declared() -> Command:
    """The command with its verbs."""
    command = Command("message", __doc__)
    verb = command.verb("get", get)
    decode_by(_topic_and_id(verb))
    verb = command.verb("find", find)
    verb.argument("topic")
    verb.argument("--key", help="find messages by key, in the key index")
    verb.argument(
        "--from", dest="since", metavar="TIME", help="stored at this time or later: -15m, or an ISO time"
    )
    verb.argument("--to", dest="until", metavar="TIME", help="stored until this time (default: now)")
    verb.argument("--tag", help="only messages with these tags: a or 'a || b'")
    verb.argument("--grep", metavar="REGEX", help="only bodies that match this regular expression")
    verb.argument("--limit", type=count, default=LIMIT, metavar="N", help=f"maximum number (default {LIMIT})")
    verb = command.verb("path", path)
    _topic_and_id(verb)
    verb = command.verb("resend", resend)
    _topic_and_id(verb).moving()
    verb.argument("--group", help="let one member of this group consume it")
    verb.argument("--client", metavar="ID", help="client id of the member (default: any)")
    return command


def main(arguments: Sequence[str]) -> int:
    return declared().run(arguments)


def _topic_and_id(verb: Verb) -> Verb:
    verb.argument("topic")
    return verb.argument("id", metavar="ID", help="id that the send returned, or offset id")


async def get(call: Call) -> None:
    """Show one message. Its id is the one that its send returned, or its offset id.

    firearrow message get orders 7F0000010001…
    firearrow message get orders 7F0000010001… --decode hex
    """
    print_message(call.output, await found_message(call), call.arguments.decode)


async def find(call: Call) -> int:
    """Find messages of a topic by key, or in a range of time. The exit code is 1 if there are none.

    firearrow message find orders --key 42
    firearrow message find orders --from -15m --grep 'id.*42'
    """
    given, admin = call.arguments, await call.admin()
    if given.limit > LIMIT_MAX:
        raise ConfigError(f"--limit must be at most {LIMIT_MAX}")
    if given.key is None and given.since is None:
        raise ConfigError("give --key, or a time by --from, so that not the whole topic is read")
    wanted = Wanted(
        keys=frozenset() if given.key is None else frozenset([given.key]),
        grep=pattern(given.grep),
        since_ms=time_ms(given.since) if given.since is not None else 0,
        until_ms=time_ms(given.until) if given.until is not None else 0,
        tags=tags_of(given.tag),
    )
    if given.key is not None:
        until = {"end_ms": wanted.until_ms} if wanted.until_ms else {}
        named = await admin.messages_by_key(given.topic, given.key, given.limit, wanted.since_ms, **until)
        found = [message for message in named if wanted(message)][: given.limit]
    else:
        found = await _of_a_time(call, wanted)
    print_messages(call.output, found)
    if not found:
        call.output.note("no message was found")
    elif len(found) == given.limit:
        call.output.note(f"the first {given.limit} were shown: --limit shows more")
    return OK if found else FOUND_TROUBLE


async def _of_a_time(call: Call, wanted: Wanted) -> list[ReceivedMessage]:
    from firearrow.client.cli.messages.queue_reader import From, Start, TopicReader  # noqa: PLC0415 (pulls)

    reader = TopicReader(await call.admin(), call.arguments.topic, tags=call.arguments.tag)
    spans = await reader.spans(Start(From.TIME, wanted.since_ms))
    if wanted.until_ms:
        spans = await reader.until(spans, wanted.until_ms)
    found: list[ReceivedMessage] = []
    async with contextlib.aclosing(reader.stored(spans)) as messages:
        async for message in messages:
            if wanted(message):
                found.append(message)
            if len(found) == call.arguments.limit:
                break
    return found


async def path(call: Call) -> int:
    """Show what happened to a message: stored, due, delivered, retried, dead. The exit code is
    1 if something went wrong.

        firearrow message path orders 7F0000010001…
        firearrow message path orders 7F0000010001… --json
    """
    from firearrow.client.cli.messages.message_path import MessagePath  # noqa: PLC0415 (traces)

    given = call.arguments
    try:
        message = await found_message(call)
    except ClientError as error:
        if isinstance(error, TransportError) or error.code != ResponseCode.NO_MESSAGE:
            raise
        message = None  # not yet in its topic: delayed, or of an open transaction
    steps = await MessagePath(await call.admin(), given.topic, message, given.id).steps()
    call.output.rows(PATH_COLUMNS, (step.row() for step in steps))
    return FOUND_TROUBLE if any(step.trouble for step in steps) else OK


async def resend(call: Call) -> int | None:
    """Send a stored message to its topic again. With --group one member of this group consumes it, and no other
    consumer.

        firearrow message resend orders 7F0000010001…
        firearrow message resend orders 7F0000010001… --group billing
    """
    given, admin = call.arguments, await call.admin()
    if given.client is not None and given.group is None:
        raise ConfigError("--client needs --group")
    message = await found_message(call)
    if given.group is None:
        return await _send_again(call, message)
    client_id = given.client
    if client_id is None:
        client_id = (await admin.consumers(given.group)).connections[0].client_id
    if not call.may(f"let {client_id} of group {given.group} consume {message.message_id} of {given.topic}"):
        return None
    result = await Operations(admin).consume_directly(given.group, client_id, message)
    row = {"group": given.group, "client": client_id, "msgId": message.message_id}
    call.output.record(
        row | {name: result.get(name) for name in ("consumeResult", "remark", "spentTimeMills")}
    )
    return OK if result.get("consumeResult") in ("CR_SUCCESS", "CR_COMMIT") else FOUND_TROUBLE


async def _send_again(call: Call, stored: ReceivedMessage) -> int:
    from firearrow.client.cli.messages.resending import message_again  # noqa: PLC0415
    from firearrow.client.cli.messages.send import GROUP, is_safe  # noqa: PLC0415 (a producer)
    from firearrow.client.send.producer import Producer  # noqa: PLC0415

    if not call.may(f"send {stored.message_id} to topic {stored.topic} again"):
        return OK
    producer = await call.enter(Producer(GROUP, client=call.options))
    result = await producer.send(message_again(stored, stored.topic))
    call.output.record(
        {
            "status": result.status.name,
            "topic": stored.topic,
            "broker": result.queue.broker_name,
            "queueId": result.queue.queue_id,
            "offset": result.queue_offset,
            "msgId": result.message_id,
            "offsetMsgId": result.offset_message_id,
        }
    )
    return OK if is_safe(call.output, {result.status: 1}) else FOUND_TROUBLE


async def found_message(call: Call) -> ReceivedMessage:
    """The message of the arguments `topic` and `id`. ClientError NO_MESSAGE."""
    given, admin = call.arguments, await call.admin()
    queries = MessageQueries(admin.calls.instance, given.timeout)
    looked: list[Callable[[str, str], Awaitable[ReceivedMessage]]] = [
        partial(queries.by_unique_id, begin_ms=0),
        queries.by_offset_id,
    ]
    if await _is_of_known_broker(call):
        looked.reverse()
    first, second = looked
    try:
        return await first(given.topic, given.id)
    except ClientError:
        with contextlib.suppress(ClientError):
            return await second(given.topic, given.id)
        raise


async def _is_of_known_broker(call: Call) -> bool:
    """Whether the id can be an offset id. A unique id has its form, but names no broker's address: asking that
    address would take the whole timeout."""
    try:
        address, _ = decode_offset_id(call.arguments.id)
    except ClientError:
        return False
    info = await (await call.admin()).cluster_info()
    return any(address in addresses.values() for addresses in info.brokers.values())
