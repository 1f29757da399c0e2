"""Show, change and compare options of brokers."""

from collections.abc import Sequence

from firearrow.client.admin_api.admin import Admin
from firearrow.client.base.errors import ClientError, ConfigError
from firearrow.client.cli.command import FOUND_TROUBLE, Call, Command, of_each
from firearrow.client.cli.contexts import chosen_context
from firearrow.client.cli.formats import pairs
from firearrow.client.cli.output import Column, titled

OWN_KEYS = frozenset(
    {"brokerName", "brokerId", "brokerIP1", "brokerIP2", "listenPort", "haListenPort", "rocketmqHome"}
    | {"storePathRootDir", "storePathCommitLog", "storePathDLedgerCommitLog", "bindAddress", "advertisedPort"}
    | {"configFilePath", "fastListenPort", "aclFileHome"}
)
"""Every broker has its own values of these."""
CLUSTER_KEYS = frozenset({"namesrvAddr", "brokerClusterName"})
"""So has every cluster of these."""
COLUMNS = titled("broker", "key", "value")
CHANGE_COLUMNS = titled("broker", "key", "from", "to")


def declared() -> Command:
    """The command with its verbs."""
    command = Command("config", __doc__)
    verb = command.verb("get", get)
    verb.argument("key", nargs="*", help="option, or a pattern such as '*Timeout*'")
    verb.argument("--broker", help="only this broker")
    verb = command.verb("set", set_options)
    verb.argument("option", nargs="+", metavar="KEY=VALUE", help="option with its new value")
    verb.argument("--broker", help="only this broker")
    verb.moving()
    verb = command.verb("diff", diff)
    verb.argument(
        "--all", action="store_true", help="include options that each broker has for itself, such as its name"
    )
    verb.argument("--broker", action="append", default=[], help="only this broker; can be repeated")
    verb.argument(
        "--with",
        dest="others",
        action="append",
        default=[],
        metavar="CONTEXT",
        help="compare with the brokers of this context; can be repeated",
    )
    return command


def main(arguments: Sequence[str]) -> int:
    return declared().run(arguments)


async def _configs(admin: Admin, brokers: Sequence[str]) -> dict[str, dict[str, str]]:
    """The options of these masters, or of all. ClientError: there is no such broker."""
    names = list(brokers) or sorted(await admin.calls.masters())
    return dict(zip(names, await of_each(names, admin.broker_config), strict=True))


async def get(call: Call) -> int:
    """Show the options that brokers use. Without a key all of them are shown.

    firearrow config get flushDiskType
    firearrow config get '*Timeout*' --broker broker-a
    """
    from fnmatch import fnmatchcase  # noqa: PLC0415 (only for this verb)

    given = call.arguments
    configs = await _configs(await call.admin(), [given.broker] if given.broker else [])
    rows = [
        {"broker": broker, "key": key, "value": value}
        for broker, config in configs.items()
        for key, value in sorted(config.items())
        if not given.key or any(fnmatchcase(key, wanted) for wanted in given.key)
    ]
    missing = [
        wanted for wanted in given.key if not any(fnmatchcase(str(row["key"]), wanted) for row in rows)
    ]
    call.output.rows(COLUMNS, rows)
    if missing:
        call.output.note(f"no broker has {', '.join(missing)}")
    return FOUND_TROUBLE if missing else 0


async def set_options(call: Call) -> None:
    """Change options of running brokers. The old and the new values are printed.

    firearrow config set fileReservedTime=48
    firearrow config set fileReservedTime=48 --broker broker-a --dry-run
    """
    given = call.arguments
    values = pairs(given.option)
    if any("\n" in text or "\r" in text for text in given.option):
        raise ConfigError("a value must not contain a line break")
    admin = await call.admin()
    before = await _configs(admin, [given.broker] if given.broker else [])
    rows = _changes(before, {broker: before[broker] | values for broker in before})
    if given.dry_run or not given.yes:
        call.output.rows(CHANGE_COLUMNS, rows)
    if not call.may(f"set {', '.join(given.option)} at {', '.join(before)}"):
        return
    for broker in before:
        await admin.update_broker_config(broker, values)
    after = await _configs(admin, list(before))
    if given.yes:
        call.output.rows(CHANGE_COLUMNS, _changes(before, after))
    ignored = [
        key for key, value in values.items() if any(config.get(key) != value for config in after.values())
    ]
    if ignored:
        raise ClientError(f"{', '.join(ignored)} did not change: the broker does not change it while it runs")


def _changes(
    before: dict[str, dict[str, str]], after: dict[str, dict[str, str]]
) -> list[dict[str, str | None]]:
    return [
        {"broker": broker, "key": key, "from": before[broker].get(key), "to": value}
        for broker, config in after.items()
        for key, value in sorted(config.items())
        if before[broker].get(key) != value
    ]


async def diff(call: Call) -> int:
    """Show options in which brokers differ, or for one broker those that differ from the defaults. The exit code is 1
    if there are any.

        firearrow config diff --broker broker-a
        firearrow config diff --context staging --with production
    """
    given, admin = call.arguments, await call.admin()
    configs = await _configs(admin, given.broker)
    if given.others:
        configs = await _with_contexts(call, configs)
    elif len(configs) == 1:
        return await _from_defaults(call, admin, next(iter(configs)))
    skipped = OWN_KEYS | CLUSTER_KEYS if given.others else OWN_KEYS
    keys = sorted(set().union(*configs.values()) - (frozenset() if given.all else skipped))
    rows: list[dict[str, str | None]] = [
        {"key": key, **{broker: config.get(key) for broker, config in configs.items()}}
        for key in keys
        if len({config.get(key) for config in configs.values()}) > 1
    ]
    call.output.rows([Column("key", "KEY"), *(Column(broker, broker) for broker in configs)], rows)
    return FOUND_TROUBLE if rows else 0


async def _with_contexts(call: Call, configs: dict[str, dict[str, str]]) -> dict[str, dict[str, str]]:
    """Those of the brokers of this context and of the others, by `CONTEXT/BROKER`. ConfigError: there is no such
    context."""
    given = call.arguments
    found = {f"{call.context_name}/{broker}": config for broker, config in configs.items()}
    for name in dict.fromkeys(given.others):
        async with Admin(
            client=chosen_context(name, None).client_options(), timeout_s=given.timeout
        ) as admin:
            others = await _configs(admin, given.broker)
        found |= {f"{name}/{broker}": config for broker, config in others.items()}
    return found


async def _from_defaults(call: Call, admin: Admin, broker: str) -> int:
    from firearrow.client.admin_api.extensions import Extensions  # noqa: PLC0415 (only for one broker)

    status = await Extensions(admin).status(broker)
    rows = [
        {"broker": broker, "key": key, "value": value} for key, value in sorted(status["options"].items())
    ]
    call.output.rows(COLUMNS, rows)
    return FOUND_TROUBLE if rows else 0
