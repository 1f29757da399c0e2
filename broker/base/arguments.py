"""The arguments of `firearrow broker` and `firearrow namesrv`, each declared once: name, default, help, type.

It imports little, because help, errors and `--version` should appear at once.
"""

import argparse
from pathlib import Path

from firearrow._native.base.command_line import Parser

LEVELS, FORMATS = ("debug", "info", "warning", "error"), ("text", "json")
LOG_FILE_SIZE, LOG_FILES = "64M", 5
LOG_FILES_MAX = 1000
CONSOLE_LISTEN = "127.0.0.1:8088"


class ServerArguments(argparse.Namespace):
    """Those of every server. `config`: its configuration file."""

    listen: str | None
    config: Path | None
    tls_cert: Path | None
    tls_key: Path | None
    log_level: str
    log_format: str
    log_file: str | None
    log_file_size: str | None
    log_files: int | None


class BrokerArguments(ServerArguments):
    store: Path | None
    advertise: str | None
    namesrv_listen: str
    namesrv: str | None
    http: str | None
    console: str | None
    set: list[str]
    check_config: Path | None


def broker_parser() -> Parser:
    parser = Parser(
        "firearrow broker",
        "Run the broker and a name server in one process. docs/OPTIONS.md explains the keys of --config and --set.",
        (
            "firearrow broker --store /var/lib/firearrow/store --listen 0.0.0.0:10911",
            "firearrow broker --config broker.conf --set fileReservedTime=48",
        ),
    )
    option = parser.add_argument
    option("--store", type=Path, metavar="DIR", help="the store's folder  [default: ~/firearrow/store]")
    option("--listen", metavar="HOST:PORT", help="where the broker listens  [default: 127.0.0.1:10911]")
    option(
        "--advertise",
        metavar="HOST:PORT",
        help="how clients reach the broker, where ports are mapped to other ports",
    )
    option(
        "--namesrv-listen",
        metavar="HOST:PORT",
        default="127.0.0.1:9876",
        help="where the name server in this process listens, or off  [default: %(default)s]",
    )
    option("--namesrv", metavar="ADDR;ADDR", help="other name servers to register with")
    option(
        "--http",
        metavar="HOST:PORT",
        help="where to serve /metrics, /healthz, /readyz and /status  [default: off; Apache's port is 5557]",
    )
    option(
        "--console",
        nargs="?",
        const=CONSOLE_LISTEN,
        metavar="HOST:PORT",
        help=f"where a visit starts the web console, or off; without a value {CONSOLE_LISTEN}  [default: off]",
    )
    option("--config", type=Path, metavar="FILE", help="a configuration file such as Apache's broker.conf")
    option(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="set a key of the configuration file, overriding the file; may be repeated",
    )
    option(
        "--check-config",
        type=Path,
        metavar="FILE",
        help="start nothing: print the options of a start with this file, and everything that is wrong with them",
    )
    _add_tls_options(parser)
    _add_log_options(parser)
    return parser


def namesrv_parser() -> Parser:
    parser = Parser(
        "firearrow namesrv",
        "Run the name server alone. docs/OPTIONS.md explains the keys of --config.",
        (
            "firearrow namesrv --listen 0.0.0.0:9876",
            "firearrow namesrv --config namesrv.conf --log-file namesrv.log",
        ),
    )
    option = parser.add_argument
    option("--listen", metavar="HOST:PORT", help="where it listens  [default: 127.0.0.1:9876]")
    option("--config", type=Path, metavar="FILE", help="a configuration file such as Apache's namesrv.conf")
    _add_tls_options(parser)
    _add_log_options(parser)
    return parser


def _add_tls_options(parser: Parser) -> None:
    option = parser.add_argument
    option(
        "--tls-cert",
        type=Path,
        metavar="FILE",
        help="accept TLS with this certificate (PEM); needs --tls-key",
    )
    option("--tls-key", type=Path, metavar="FILE", help="the private key of --tls-cert (PEM)")


def _add_log_options(parser: Parser) -> None:
    option = parser.add_argument
    option(
        "--log-level",
        type=str.lower,
        choices=LEVELS,
        default="info",
        help="what is logged  [default: %(default)s]",
    )
    option("--log-format", choices=FORMATS, default="text", help="lines of text, or of JSON objects")
    option("--log-file", metavar="PATH", help="log to this file instead of stderr; SIGHUP opens it again")
    option(
        "--log-file-size",
        metavar="SIZE",
        help=f"rotate the log file at this size, such as 500K or 1G  [default: {LOG_FILE_SIZE}]",
    )
    option(
        "--log-files",
        type=_file_count,
        metavar="N",
        help=f"log files to keep: PATH, PATH.1, PATH.2 …  [default: {LOG_FILES}]",
    )


def _file_count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text[:9]) <= LOG_FILES_MAX:
        raise argparse.ArgumentTypeError(f"must be 1 to {LOG_FILES_MAX}, not {text!r}")
    return int(text)
