"""Copy: a topic to another one, at the same cluster or elsewhere. The same command continues an interrupted copy; after
a complete one it copies what has come since.
"""

import contextlib
from collections.abc import AsyncGenerator
from dataclasses import asdict
from functools import partial
from typing import Any

from firearrow._native.base.progress_bar import Advance, messages, progress_bar
from firearrow.client.admin_api.admin import Admin
from firearrow.client.base.compression import BodyUnreadable
from firearrow.client.base.errors import ConfigError
from firearrow.client.base.message import Message, MessageQueue, message_copy
from firearrow.client.base.options import ClientOptions
from firearrow.client.cli.command import OK, Call
from firearrow.client.cli.contexts import chosen_context
from firearrow.client.cli.messages.queue_reader import TopicReader
from firearrow.client.cli.messages.selection import Selection
from firearrow.client.cli.transfer.checkpoint import Checkpoint, checkpoint_path, cluster_of, new_job_id
from firearrow.client.cli.transfer.export_topic import report_losses, selection_text
from firearrow.client.cli.transfer.forwarding import Forwarding, Target, report
from firearrow.client.cli.transfer.reading import Losses, Plan, Reading
from firearrow.client.send.queue_selection import same_queue

JOB = "copy"
SAME_TOPIC = "source and target are the same topic: name another one, CONTEXT:TOPIC or --target"


def split(name: str) -> tuple[str | None, str]:
    """`CONTEXT:TOPIC` or `TOPIC`; no topic has a colon in its name."""
    context, colon, topic = name.rpartition(":")
    return (context if colon else None), topic


async def copy(call: Call) -> int:
    """What `firearrow topic copy` does; the exit code."""
    given, selection = call.arguments, Selection.of(call.arguments)
    source_context, source_topic = split(given.source)
    target_context, target_topic = split(given.goal)
    target_topic = target_topic or source_topic
    source = call.options if source_context is None else chosen_context(source_context, None).client_options()
    target = _target_options(given, target_context, source)
    if (cluster_of(source), source_topic) == (cluster_of(target), target_topic):
        raise ConfigError(SAME_TOPIC)
    arguments = {
        "source": cluster_of(source),
        "sourceTopic": source_topic,
        "target": cluster_of(target),
        "topic": target_topic,
        **selection_text(given),
    }
    path = checkpoint_path(given.checkpoint, JOB, arguments)
    with Checkpoint.open(path, JOB, arguments, again=given.again) as checkpoint:
        admin = await call.enter(Admin(client=source, timeout_s=given.timeout))
        reader = TopicReader(admin, source_topic, sql=given.sql)
        state = checkpoint.state
        is_new = not state or state["done"]
        after = {key: each["next"] for key, each in state["plan"]["positions"].items()} if state else {}
        plan = await Plan.of(reader, selection, after) if is_new else Plan.load(state["plan"])
        if is_new and state:
            plan.since_ms = state["plan"]["sinceMs"]  # of the first copy: `-1h` is an hour before that
        losses = await Losses.of(reader) if is_new else Losses(**state["losses"])
        if is_new and after and not plan.total:
            call.output.note(
                f"nothing has come to {source_topic} since the last copy; --again copies everything"
            )
            return OK
        reading = Reading(admin, source_topic, given.sql, plan, losses)
        goal = await Target.of(call, target, target_topic, partial(_queues_of, plan))
        await _check_different(admin, source_topic, goal)
        forwarding = await _forwarding(call, checkpoint, goal, reading, None if is_new else state)
        return await _forward(forwarding, reading, selection)


async def _check_different(admin: Admin, topic: str, goal: Target) -> None:
    """ConfigError: both are one topic, though their name servers or namespaces are written in two ways."""
    wrapped = admin.namespace.wrap(topic)
    if wrapped == goal.admin.namespace.wrap(goal.topic):
        ours, theirs = await admin.calls.masters_of(wrapped), await goal.admin.calls.masters_of(wrapped)
        if set(ours.values()) & set(theirs.values()):
            raise ConfigError(SAME_TOPIC)


def _target_options(given: Any, context: str | None, source: ClientOptions) -> ClientOptions:  # noqa: ANN401
    """ConfigError: there is no such context."""
    if context is not None and given.target is not None:
        raise ConfigError("give CONTEXT:TOPIC or --target, not both")
    if context is not None or given.target is not None:
        return chosen_context(context, given.target).client_options()
    return source


def _queues_of(plan: Plan) -> int:
    """How many queues one broker of the source has."""
    return max(int(key.rpartition("/")[2]) for key in plan.ends) + 1


async def _forwarding(
    call: Call, checkpoint: Checkpoint, goal: Target, reading: Reading, state: dict[str, Any] | None
) -> Forwarding:
    plan = reading.plan
    first = {key: positions.next for key, positions in plan.positions.items()}
    ends = await goal.ends() if state is None else {}
    job = new_job_id(JOB) if state is None else state["id"]
    made = Forwarding(call, checkpoint, goal, job, reading.topic, plan.positions, first, ends, dict(ends))
    if state is not None:
        made.load(state)
    made.more_state = lambda: {"plan": plan.saved(), "losses": asdict(reading.losses), "done": False}
    return made


async def _forward(forwarding: Forwarding, reading: Reading, selection: Selection) -> int:
    call, plan = forwarding.call, reading.plan
    given = call.arguments
    with progress_bar(f"copy {reading.topic}", plan.total, quiet=given.quiet, text=messages) as advance:
        await forwarding.run(partial(_messages, forwarding, reading, selection, advance))
    facts = await forwarding.verify() if given.verify and forwarding.named else {}
    code = report(forwarding, facts, {"sourceTopic": reading.topic, **reading.losses.row()})
    forwarding.more_state = lambda: {"plan": plan.saved(), "losses": asdict(reading.losses), "done": True}
    forwarding.save()
    return max(code, report_losses(call, reading.losses))


async def _messages(
    forwarding: Forwarding, reading: Reading, selection: Selection, advance: Advance
) -> AsyncGenerator[tuple[str, int, Message, MessageQueue], None]:
    """What is left to be sent."""
    plan, target = reading.plan, forwarding.target
    wanted, limit, taken = plan.wanted(selection), selection.limit, forwarding.totals.sent
    brokers = sorted({key.rpartition("/")[0] for key in plan.ends})
    async with contextlib.aclosing(reading.messages()) as found:
        async for key, stored in found:
            if limit is not None and taken >= limit:
                return
            advance(1)
            position, is_damaged = stored.queue_offset, reading.is_damaged(stored)
            if is_damaged or not wanted(stored):
                plan.positions[key].done(position)
                continue
            try:
                message = message_copy(stored, target.topic)
            except BodyUnreadable as error:
                forwarding.refuse(key, position, str(error))
                continue
            taken += 1
            source = MessageQueue(reading.topic, stored.broker_name, stored.queue_id)
            yield key, position, message, same_queue(source, brokers, target.queues)
