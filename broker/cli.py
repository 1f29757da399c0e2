"""The command line: turns arguments into Options and starts an App.

Exit codes: 0 clean, 2 usage error, 3 cannot start. Packages add commands by entry points of the group
`firearrow.commands`: a function that takes the arguments and returns the exit code. Its module is imported
when the command is called; the first line of its docstring is the command's help.
"""

import ast
import asyncio
import dataclasses
import logging
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from firearrow.broker.base.config import Config, ConfigError, apply, configured
from firearrow.broker.base.errors import StartError
from firearrow.broker.base.log_output import queue_outputs
from firearrow.broker.base.options import Options

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

CANNOT_START = 3
COMMANDS = "firearrow.commands"
PASS_ARGUMENTS = {"allow_extra_args": True, "ignore_unknown_options": True}
"""Settings of a command that parses its arguments itself."""


class Commands(TyperGroup):
    """The commands of this module, then those of entry points, which are looked up only when needed."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401 (Typer's own copy of click is private)
        return [*super().list_commands(ctx), *sorted(_entry_points().names)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401
        return super().get_command(ctx, cmd_name) or _plugin_command(cmd_name)


cli = typer.Typer(
    name="firearrow",
    cls=Commands,
    help="A message broker for one machine that speaks Apache RocketMQ.",
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _version(requested: bool) -> None:
    if requested:
        from importlib import metadata  # noqa: PLC0415 (slow, rarely used)

        typer.echo(f"firearrow {metadata.version('firearrow')}")
        raise typer.Exit()


Version = Annotated[
    bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
]
LogLevel = Annotated[
    str, typer.Option("--log-level", help="debug, info, warning or error. The log goes to stderr.")
]


@cli.callback()
def common(version: Version = False) -> None:
    """Options before the command."""


@cli.command()
def broker(
    store: Annotated[
        Path | None, typer.Option(help="The store's folder  [default: ~/firearrow/store]")
    ] = None,
    listen: Annotated[
        str | None, typer.Option(help="HOST:PORT of the broker  [default: 127.0.0.1:10911]")
    ] = None,
    namesrv_listen: Annotated[
        str, typer.Option(help="HOST:PORT of the name server in this process, or off.")
    ] = "127.0.0.1:9876",
    namesrv: Annotated[
        str | None, typer.Option(help="Other name servers to register with: ADDR;ADDR")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="A configuration file in the format of Apache's broker.conf.")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="KEY=VALUE, overrides the file; may be repeated.")
    ] = None,
    log_level: LogLevel = "warning",
    version: Version = False,
) -> None:
    """Run the broker and a name server in one process. OPTIONS.md explains the keys of --config and --set."""
    _logging(log_level)
    options = _options(store, listen, namesrv, config, set_ or [])
    from firearrow.broker.app.app import App  # noqa: PLC0415 (not needed for help and usage errors)

    _run(lambda loop: App(loop, Config(options, config), _address(namesrv_listen, "--namesrv-listen")).run())


@cli.command()
def namesrv(
    listen: Annotated[
        str | None, typer.Option(help="HOST:PORT to listen on  [default: 127.0.0.1:9876]")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="A configuration file in the format of Apache's namesrv.conf.")
    ] = None,
    log_level: LogLevel = "warning",
) -> None:
    """Run the name server alone. OPTIONS.md explains the keys of --config."""
    _logging(log_level)
    from firearrow.broker.app.name_server_app import NameServerApp, options_of  # noqa: PLC0415

    address = None if listen is None else _address(listen, "--listen")
    if listen is not None and address is None:
        raise typer.BadParameter("--listen needs HOST:PORT")
    try:
        options = options_of(config)
    except (OSError, ValueError) as error:
        raise typer.BadParameter(str(error)) from None
    _run(lambda loop: NameServerApp(loop, address, options).run())


@cli.command(add_help_option=False, context_settings=PASS_ARGUMENTS)
def store(context: typer.Context) -> None:
    """Check and repair a store, and more: verify, repair, dump, stat, backup."""
    from firearrow.broker.maintenance import commands  # noqa: PLC0415 (a broker does not need it)

    commands.cli(context.args, prog_name="firearrow store")


def main() -> None:
    cli()


def _entry_points() -> "EntryPoints":
    from importlib import metadata  # noqa: PLC0415 (slow, and a broker does not need it)

    return metadata.entry_points(group=COMMANDS)


def _plugin_command(name: str) -> Any:  # noqa: ANN401
    """The command of the entry point with this name; None if there is none."""
    entry = next(iter(_entry_points().select(name=name)), None)
    if entry is None:
        return None
    program = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)

    @program.command(
        name, help=_summary(entry.module), add_help_option=False, context_settings=PASS_ARGUMENTS
    )
    def run(context: typer.Context) -> None:
        try:
            command = entry.load()
        except ModuleNotFoundError as error:
            typer.echo(f"firearrow {name}: the Python package {error.name} is not installed", err=True)
            raise typer.Exit(CANNOT_START) from None
        raise typer.Exit(command(context.args))

    return typer.main.get_command(program)


def _summary(module: str) -> str:
    """The first line of the module's docstring. The file is parsed, not imported: its imports can be slow."""
    path: Sequence[str] | None = None
    origin, name = None, ""
    for part in module.split("."):
        name = f"{name}.{part}" if name else part
        spec = next(filter(None, (finder.find_spec(name, path) for finder in sys.meta_path)), None)
        if spec is None:
            return ""
        path, origin = spec.submodule_search_locations, spec.origin
    docstring = ast.get_docstring(ast.parse(Path(origin).read_text("utf-8"))) if origin else None
    return (docstring or "").partition("\n")[0]


def _options(
    store: Path | None, listen: str | None, namesrv: str | None, config: Path | None, pairs: list[str]
) -> Options:
    flags: dict[str, str] = {}
    if store is not None:
        flags["storePathRootDir"] = str(store)
    if namesrv is not None:
        flags["namesrvAddr"] = namesrv
    if listen is not None:
        address = _address(listen, "--listen")
        if address is None:
            raise typer.BadParameter("--listen needs HOST:PORT")
        flags["bindAddress"], flags["listenPort"] = address[0], str(address[1])
    try:
        options = configured(Options(), config, dict(_pair(pair) for pair in pairs))
        options = apply(options, flags)
        return options if options.store_root else dataclasses.replace(options, store_root=_default_store())
    except (OSError, ValueError) as error:
        raise typer.BadParameter(str(error)) from None


def _default_store() -> str:
    try:
        return str(Path.home() / "firearrow" / "store")
    except RuntimeError:
        raise ConfigError("there is no home folder for the store: name a folder with --store") from None


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"--set needs KEY=VALUE, not {text!r}")
    return key.strip(), value.strip()


def _address(text: str, option: str) -> tuple[str, int] | None:
    """HOST:PORT, or None for `off`. A host in brackets is an IPv6 address."""
    if text == "off":
        return None
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise typer.BadParameter(f"{option} needs HOST:PORT, not {text!r}")
    return host.strip("[]"), int(port)


def _logging(level: str) -> None:
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise typer.BadParameter(f"--log-level must be debug, info, warning or error, not {level!r}")
    queue_outputs(number)


def _run(start: Callable[[asyncio.AbstractEventLoop], Awaitable[None]]) -> None:
    import uvloop  # noqa: PLC0415

    from firearrow.broker.base.process import ignore_user_signals  # noqa: PLC0415 (loads compiled modules)

    ignore_user_signals()

    async def main() -> None:
        await start(asyncio.get_running_loop())

    try:
        uvloop.run(main())
    except StartError as error:
        typer.echo(f"firearrow: {error}", err=True)
        raise typer.Exit(CANNOT_START) from None
