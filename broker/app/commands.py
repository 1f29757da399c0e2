"""What `firearrow broker` and `firearrow namesrv` do with their arguments: log, options, check or run.

`broker/cli.py` parses the arguments and imports this module only for these commands. UsageError: what is wrong with
the arguments. The functions return the exit code.
"""

import asyncio
import contextlib
import dataclasses
import logging
import os
import re
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import uvloop

from firearrow.broker.base.arguments import LOG_FILE_SIZE, LOG_FILES, BrokerArguments, ServerArguments
from firearrow.broker.base.config import (
    Complaint,
    Config,
    ConfigError,
    apply,
    configured,
    judge,
    outgoing_fault,
)
from firearrow.broker.base.errors import StartError, UsageError
from firearrow.broker.base.file_reads import FileReader
from firearrow.broker.base.log_output import (
    TEXT,
    JsonFormatter,
    LogFile,
    open_standard_descriptors,
    queue_outputs,
)
from firearrow.broker.base.options import Options
from firearrow.broker.base.peer import Address
from firearrow.broker.base.process import StopSignals, hold_hangups, ignore_user_signals
from firearrow.broker.base.systemd import PassedSockets
from firearrow.broker.tables.broker_name import named

log = logging.getLogger("firearrow.app")

CLEAN, COMPLAINTS, CANNOT_START = 0, 2, 3
SIZE = re.compile(r"([0-9]{1,12})([KMG]?)", re.IGNORECASE)
SHIFTS = {"": 0, "K": 10, "M": 20, "G": 30}
LOG_FILE_BYTES_MIN = 1 << 10
ROLE_FIELDS = ("broker_role", "broker_id", "ha_port")
"""Options that the store's role overrides."""

# ---- the broker ----


def broker(given: BrokerArguments) -> int:
    """Run the broker until it is stopped, or check its configuration."""
    naming = address_of(given.namesrv_listen, "--namesrv-listen")
    flags = _flags(given)
    if given.check_config is not None:
        return _check_config(given, given.check_config, flags)
    log_file = _start_log(given)

    def load() -> Options:
        return _with_flags(configured(Options(), given.config, _pairs(given.set) | _tls_pairs(given)), flags)

    try:
        config = Config(load(), given.config, load if given.config is not None else None)
    except (OSError, ValueError) as error:
        raise _config_fault(error) from None

    reader = FileReader("the configuration", config.load_again, config.take)
    reload = _reload(log_file, given.config, reader)
    return _run(lambda loop: _serve(loop, config, naming, reload), log_file)


async def _serve(
    loop: asyncio.AbstractEventLoop,
    config: Config,
    naming: Address | None,
    reload: Callable[[], None] | None,
) -> None:
    """Run the broker, again after each change of its role. StartError."""
    from firearrow.broker.app.app import App  # noqa: PLC0415 (not needed for wrong usage)
    from firearrow.broker.app.controller_mode import ControllerConnections  # noqa: PLC0415
    from firearrow.broker.app.foundation import Start  # noqa: PLC0415
    from firearrow.broker.context.broker_context import Restart  # noqa: PLC0415
    from firearrow.broker.replication.failover.role import BrokerRole  # noqa: PLC0415

    _check_folder(config.options.store_root)
    config.start_again({"broker_name": named(config.options).broker_name})
    signals, passed = StopSignals(loop, reload), PassedSockets()
    configured: dict[str, Any] = {name: getattr(config.options, name) for name in ROLE_FIELDS}
    controllers = ControllerConnections(loop, config.options) if config.options.controller_mode else None
    client = None if controllers is None else controllers.client
    restart: Restart | None = Restart("")
    try:
        while restart is not None:
            role = BrokerRole(config.options.store_root)
            options = dataclasses.replace(config.options, **configured)
            by_controllers: dict[str, Any] = {} if client is None else dict(client.options())
            options = (
                role.effective(options) if client is None else dataclasses.replace(options, **by_controllers)
            )
            config.start_again({name: getattr(options, name) for name in configured})
            appointed = None if client is None else client.role
            app = App(
                Start(loop, config, naming, signals, passed, role, client, appointed, restart.truncate_at)
            )
            restart = await app.run()
            naming = app.naming
            configured |= {} if restart is None else restart.options
    finally:
        if controllers is not None:
            await controllers.stop()


def _check_config(given: BrokerArguments, path: Path, flags: dict[str, str]) -> int:
    """Print the options that a start would use, on stdout, and every complaint about them, on stderr."""
    if given.config is not None:
        raise UsageError("use --check-config instead of --config, not with it")
    try:
        options, complaints, _ = judge(Options(), path, _pairs(given.set) | _tls_pairs(given))
    except (OSError, ValueError) as error:
        raise _config_fault(error) from None
    try:
        options = _with_flags(options, flags)
    except ConfigError as error:
        complaints.append(Complaint(str(error), fatal=True))
    complaints += _start_faults(options)
    with contextlib.suppress(StartError):  # a complaint about the store's folder comes with the start
        options = named(options)
    for key, text in sorted(Config(options).properties().items()):
        print(f"{key}={text}")
    for complaint in complaints:
        print(f"{path}: {complaint.text.removeprefix(f'{path}: ')}", file=sys.stderr)
    return COMPLAINTS if complaints else CLEAN


def _start_faults(options: Options) -> list[Complaint]:
    """What would end the start later, as far as the options alone show it."""
    from firearrow.broker.app.ports import check_port  # noqa: PLC0415 (only for --check-config)
    from firearrow.broker.replication.controller.client import controllers_of  # noqa: PLC0415
    from firearrow.broker.replication.slave import check_slave  # noqa: PLC0415
    from firearrow.broker.services.registration import addresses  # noqa: PLC0415

    found = []
    checks: tuple[Callable[[], object], ...] = (
        lambda: check_slave(options, addresses(options.name_servers)),
        lambda: check_port(options.listen_port),
        lambda: None if not options.controller_mode else controllers_of(options),
    )
    for check in checks:
        try:
            check()
        except StartError as error:
            found.append(Complaint(str(error), fatal=True))
    return found


def _check_folder(root: str) -> None:
    """StartError: the store's path is that of a file."""
    if os.path.lexists(root) and not os.path.isdir(root):
        raise StartError(f"the store {root} is not a folder: name another one with --store")


def _flags(given: BrokerArguments) -> dict[str, str]:
    """The options that have an argument of their own."""
    flags: dict[str, str] = {}
    if given.store is not None:
        flags["storePathRootDir"] = str(given.store)
    if given.namesrv is not None:
        flags["namesrvAddr"] = given.namesrv
    if given.listen is not None:
        host, port = _listen_address(given.listen)
        flags["bindAddress"], flags["listenPort"] = host, str(port)
    if given.http is not None:
        flags |= _http_flags(given.http)
    if given.console is not None:
        is_off = address_of(given.console, "--console") is None
        flags["consoleListen"] = "" if is_off else given.console
    if given.advertise is not None:
        address = address_of(given.advertise, "--advertise")
        if address is None or address[1] == 0:
            raise UsageError(
                f"--advertise needs HOST:PORT, as clients reach the broker, not {given.advertise!r}"
            )
        flags["brokerIP1"], flags["advertisedPort"] = address[0], str(address[1])
    return flags


def _http_flags(text: str) -> dict[str, str]:
    address = address_of(text, "--http")
    if address is None:
        return {"metricsExporterType": "DISABLE"}
    return {
        "metricsExporterType": "PROM",
        "metricsPromExporterHost": address[0],
        "metricsPromExporterPort": str(address[1]),
    }


def _config_fault(error: OSError | ValueError) -> UsageError:
    if isinstance(error, OSError) and error.filename is not None:
        return UsageError(f"{error.filename}: {error.strerror}")
    return UsageError(str(error))


def _with_flags(options: Options, flags: dict[str, str]) -> Options:
    if not options.store_root and "storePathRootDir" not in flags:
        flags = flags | {"storePathRootDir": _default_store()}
    options = apply(options, flags)
    if (fault := outgoing_fault(options)) is not None:
        raise ConfigError(fault)
    return options


def _default_store() -> str:
    try:
        return str(Path.home() / "firearrow" / "store")
    except RuntimeError:
        raise ConfigError("there is no home folder for the store: name a folder with --store") from None


def _pairs(texts: list[str]) -> dict[str, str]:
    pairs = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"--set needs KEY=VALUE, not {text!r}")
        pairs[key.strip()] = value.strip()
    return pairs


def _tls_pairs(given: ServerArguments) -> dict[str, str]:
    """The options that --tls-cert and --tls-key mean."""
    if (given.tls_cert is None) != (given.tls_key is None):
        raise UsageError("--tls-cert and --tls-key need each other")
    if given.tls_cert is None:
        return {}
    return {"tls.server.certPath": str(given.tls_cert), "tls.server.keyPath": str(given.tls_key)}


# ---- the name server ----


def namesrv(given: ServerArguments) -> int:
    """Run the name server until it is stopped."""
    address = None if given.listen is None else _listen_address(given.listen)
    log_file = _start_log(given)
    from firearrow.broker.app.name_server_app import (  # noqa: PLC0415 (not needed for wrong usage)
        ConfigReader,
        NameServerApp,
        options_of,
    )

    try:
        config = options_of(given.config, _tls_pairs(given))
    except (OSError, ValueError) as error:
        raise _config_fault(error) from None
    options = ConfigReader(given.config, config)
    reader = FileReader("the configuration", options.load_again, options.take)
    reload = _reload(log_file, given.config, reader)
    return _run(lambda loop: NameServerApp(loop, address, config, reload).run(), log_file)


# ---- both ----


def address_of(text: str, option: str) -> Address | None:
    """HOST:PORT, or None for `off`. A host in brackets is an IPv6 address. UsageError."""
    if text == "off":
        return None
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise UsageError(f"{option} needs HOST:PORT, not {text!r}")
    return host.strip("[]"), int(port)


def _listen_address(text: str) -> Address:
    address = address_of(text, "--listen")
    if address is None:
        raise UsageError("--listen needs HOST:PORT")
    return address


def _start_log(given: ServerArguments) -> LogFile | None:
    """Send the log where the arguments state; the log file, if there is one."""
    path = given.log_file
    if path is None and (given.log_file_size is not None or given.log_files is not None):
        raise UsageError("--log-file-size and --log-files need --log-file")
    if path is not None or given.config is not None:
        hold_hangups()
    formatter = JsonFormatter() if given.log_format == "json" else TEXT
    size, files = _bytes(given.log_file_size or LOG_FILE_SIZE), given.log_files or LOG_FILES
    level = logging.getLevelNamesMapping()[given.log_level.upper()]
    open_standard_descriptors()
    if path is None:
        queue_outputs(level, formatter)
        return None
    try:
        log_file = LogFile(path, size, files, formatter)
    except OSError as error:
        raise UsageError(f"--log-file {path}: {error.strerror}") from None
    queue_outputs(level, formatter, log_file)
    return log_file


def _bytes(text: str) -> int:
    """`64M`, `100k`, `4096`: a size in bytes, with binary units."""
    match = SIZE.fullmatch(text)
    size = int(match[1]) << SHIFTS[match[2].upper()] if match is not None else 0
    if size < LOG_FILE_BYTES_MIN:
        raise UsageError(f"--log-file-size needs a size of at least 1K, such as 64M, not {text!r}")
    return size


def _reload(
    log_file: LogFile | None, config: Path | None, reader: FileReader[Any]
) -> Callable[[], None] | None:
    """What SIGHUP does: open the log file again and read the configuration file again. None: there is neither."""
    if log_file is None and config is None:
        return None

    def reload() -> None:
        if log_file is not None:
            log_file.reopen()
        if config is not None:
            reader.start(asyncio.get_running_loop())

    return reload


def _run(start: Callable[[asyncio.AbstractEventLoop], Awaitable[None]], log_file: LogFile | None) -> int:
    ignore_user_signals()

    async def main() -> None:
        await start(asyncio.get_running_loop())

    try:
        uvloop.run(main())
    except StartError as error:
        print(f"firearrow: {error}", file=sys.stderr)
        if log_file is not None:
            log.error("%s", error)
        return CANNOT_START
    return CLEAN
