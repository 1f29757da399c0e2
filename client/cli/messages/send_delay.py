"""How a message is delayed: by a timer message where all brokers of its topic have them, else by a delay level.

Apache's brokers before 5.0 have no timer messages and would deliver one at once, so each broker is asked first.
"""

from collections.abc import Mapping

from firearrow.client.admin_api.admin import Admin
from firearrow.client.base.errors import ConfigError, NoRoute
from firearrow.client.base.message import Message
from firearrow.client.base.times import UNIT_MS, duration_ms, time_text

DEFAULT_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
LEVELS_MAX = 1000


async def set_due_time(admin: Admin, message: Message, due_ms: int, delay: str | None) -> str:
    """Set the message's timer or delay level; a sentence that says which.

    `delay`: the duration as typed; None: a time was given. ConfigError: the brokers cannot do it.
    """
    configs = [await admin.broker_config(name) for name in await _brokers(admin, message.topic)]
    if all(config.get("timerWheelEnable") == "true" for config in configs):
        message.deliver_at_ms = due_ms
        return f"sent as a timer message, due at {time_text(due_ms)}"
    tables = {config.get("messageDelayLevel", DEFAULT_LEVELS) for config in configs}
    if delay is None:
        raise ConfigError(
            "--at needs timer messages, which a broker of this topic does not have: use --delay"
        )
    if len(tables) != 1:
        raise ConfigError(
            "the brokers of this topic have different delay levels, and not all have timer messages"
        )
    levels = delay_levels(tables.pop())
    wanted_ms = duration_ms(delay)
    level = next((number for number, ms in levels.items() if ms == wanted_ms), None)
    if level is None:
        known = " ".join(f"{ms // 1000}s" for ms in levels.values())
        raise ConfigError(
            f"a broker of this topic has no timer messages (timerWheelEnable), only delay levels: choose of {known}"
        )
    message.delay_level = level
    return f"sent with delay level {level}, due in {delay}"


def delay_levels(table: str) -> Mapping[int, int]:
    """Level → ms, of a `messageDelayLevel`; words that are no times are skipped."""
    levels: dict[int, int] = {}
    for number, word in enumerate(table.split()[:LEVELS_MAX], 1):
        digits, unit = word[:-1], word[-1]
        if digits.isdecimal() and digits.isascii() and len(digits) < 10 and unit in UNIT_MS:
            levels[number] = int(digits) * UNIT_MS[unit]
    return levels


async def _brokers(admin: Admin, topic: str) -> list[str]:
    """The brokers that may get the message: those of the topic, or all if this send creates it."""
    try:
        return sorted({queue.broker_name for queue in await admin.queues(topic, write=True)})
    except NoRoute:
        return sorted(await admin.calls.masters())
