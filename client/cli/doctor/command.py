"""Look for problems in a cluster or a stopped store."""

import contextlib
import gc
import sys
from collections.abc import Iterator, Sequence

from firearrow._native.store_checks.findings import Severity
from firearrow.client.base.errors import ConfigError, RocketMQError, TransportError
from firearrow.client.base.times import duration_ms, now_ms
from firearrow.client.cli.command import CANNOT_REACH, FOUND_TROUBLE, OK, Call, Command
from firearrow.client.cli.doctor import (
    broker_checks,
    group_checks,
    machine_checks,
    name_server_checks,
    name_server_facts,
    replica_checks,
    topic_checks,
)
from firearrow.client.cli.doctor.checks import Examined, counted, run, shortened
from firearrow.client.cli.doctor.cluster import Watch, cluster_facts
from firearrow.client.cli.doctor.facts import Facts
from firearrow.client.cli.output import Colour, Output, printable, titled

CHECKS = (
    *name_server_checks.CHECKS,
    *group_checks.CHECKS,
    *topic_checks.CHECKS,
    *broker_checks.CHECKS,
    *machine_checks.CHECKS,
    *replica_checks.CHECKS,
)
COLOURS = {Severity.CRITICAL: Colour.RED, Severity.WARNING: Colour.YELLOW}
UNKNOWN = 3
"""The exit code of a plugin that could not look; 0, 1 and 2 are those of Severity."""
NAMED_MAX = 3
"""Findings that a plugin's line names."""


def declared(doctor: "Doctor") -> Command:
    """The command, which lets this doctor look."""
    command = Command("doctor", __doc__)
    verb = command.only(doctor.examine)
    verb.argument("--store", metavar="DIR", help="examine this store folder instead of a cluster (Linux)")
    verb.argument(
        "--nagios", action="store_true", help="print one line with perfdata, and exit as a Nagios plugin"
    )
    verb.argument(
        "--forget",
        metavar="BROKER",
        help="expect this broker no more: it was taken away for good (and look for no problems)",
    )
    verb.argument("--list", action="store_true", help="list the checks")
    verb.argument(
        "--stuck-after",
        metavar="AGE",
        default="60s",
        help="age from which the next message of a group counts as stuck (default 60s)",
    )
    verb.argument(
        "--watch",
        metavar="TIME",
        default="6s",
        help="how long to watch such a group (default 6s; clients commit every 5 s)",
    )
    return command


def main(arguments: Sequence[str]) -> int:
    with _no_collections():
        return _main(arguments)


@contextlib.contextmanager
def _no_collections() -> Iterator[None]:
    """Facts stay until the end: to look for garbage among hundreds of thousands of them takes a third of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _main(arguments: Sequence[str]) -> int:
    doctor = Doctor()
    command = declared(doctor)
    if "--nagios" not in arguments:
        return command.run(arguments)
    try:
        code = command.run(arguments)
    except SystemExit as ended:
        if not ended.code:  # help, version
            raise
        code = UNKNOWN
    if not doctor.answered:
        print("FIREARROW UNKNOWN: the doctor could not run; stderr says why")
        return UNKNOWN
    return code


class Doctor:
    """`answered`: the line of a plugin was printed."""

    def __init__(self) -> None:
        self.answered = False

    async def examine(self, call: Call) -> int:
        """Look for problems in a cluster, or in the folder of a stopped store. Each finding comes with its
        reason, its effect and the way to fix it.

            firearrow doctor
            firearrow doctor --store /var/lib/firearrow/store
        """
        arguments, output = call.arguments, call.output
        if arguments.list:
            output.rows(
                titled("check", "looksFor"),
                ({"check": check.name, "looksFor": check.looks_for} for check in CHECKS),
            )
            return OK
        if arguments.forget is not None:
            count = await name_server_facts.forget(await call.admin(), call.options, arguments.forget)
            output.note(
                f"broker {arguments.forget} is not expected any more: {counted(count, 'entry', 'entries')}"
            )
            return OK if count else FOUND_TROUBLE
        try:
            facts = await _facts(call)
        except (RocketMQError, OSError) as error:
            if arguments.nagios:
                return self._answer(output, f"FIREARROW UNKNOWN: {error}", UNKNOWN)
            if isinstance(error, OSError):
                output.note(f"firearrow doctor: {error}")
                return CANNOT_REACH
            raise
        examined = run(CHECKS, facts)
        if arguments.nagios:
            return self._answer(output, plugin_line(examined, facts), int(examined.worst))
        _show(output, examined)
        return OK if examined.worst is Severity.NOTE else FOUND_TROUBLE

    def _answer(self, output: Output, line: str, code: int) -> int:
        output.text(printable(line))
        self.answered = True
        return code


async def _facts(call: Call) -> Facts:
    """RocketMQError, OSError: what should be looked at cannot be read."""
    folder = call.arguments.store
    if folder is None:
        watch = Watch(duration_ms(call.arguments.stuck_after), duration_ms(call.arguments.watch) / 1000)
        facts = Facts(now_ms())
        try:
            await cluster_facts(await call.admin(), facts, call.options.name_server, watch)
        except TransportError:
            await name_server_facts.read_certificates(call.options, facts)
            if not any(name_server_checks.certificates.run(facts)):
                raise
        else:
            await name_server_facts.read_certificates(call.options, facts)
        return facts
    if sys.platform != "linux":
        raise ConfigError("--store needs Linux: on other systems FireArrow is only a client")
    from firearrow.client.cli.doctor.store_files import store_facts  # noqa: PLC0415 (Linux only)

    return store_facts(folder)


def _show(output: Output, examined: Examined) -> None:
    for finding in examined.findings:
        if output.json:
            output.json_line(
                {
                    "check": finding.kind,
                    "severity": finding.severity.name,
                    "subject": finding.where,
                    "found": finding.text,
                    "why": finding.meaning,
                    "fix": finding.repair,
                }
            )
            continue
        severity = output.painted(finding.severity.name, COLOURS.get(finding.severity))
        output.text(f"{severity} {printable(f'{finding.where}: {finding.text}')}")
        output.text(printable(f"  why:   {finding.meaning}"))
        output.text(printable(f"  fix:   {finding.repair}"))
        output.text(f"  check: {finding.kind}\n")
    for name, skipped in examined.skipped:
        if output.json:
            output.json_line({"check": name, "severity": "NOT_CHECKED", **skipped._asdict()})
        else:
            subject = f" {skipped.subject}" if skipped.subject else ""
            output.text(printable(f"not checked: {name}{subject}: {skipped.reason}"))
    if not output.json:
        output.text(_summary(examined))


def _summary(examined: Examined) -> str:
    notes, warnings, critical = map(examined.count, Severity)
    return (
        f"{counted(examined.checks, 'check')}: {critical} critical, {counted(warnings, 'warning')}, "
        f"{counted(notes, 'note')}, {len(examined.skipped)} not checked"
    )


def plugin_line(examined: Examined, facts: Facts) -> str:
    """A line as Nagios, Icinga and others read it: state, text, `|`, perfdata."""
    trouble = [finding for finding in examined.findings if finding.severity is not Severity.NOTE]
    word = "OK" if not trouble else examined.worst.name
    text = shortened((f"{each.where}: {each.text}" for each in trouble), NAMED_MAX) or _summary(examined)
    return f"FIREARROW {word}: {text.replace('|', '/')} | {_perfdata(examined, facts)}"


def _perfdata(examined: Examined, facts: Facts) -> str:
    values = [
        f"critical={examined.count(Severity.CRITICAL)};;0",
        f"warning={examined.count(Severity.WARNING)};0",
        f"notes={examined.count(Severity.NOTE)}",
        f"lag={sum(group.lag for group in facts.plain_groups())}",
        f"brokers={sum(1 for _ in facts.asked_brokers())}",
    ]
    machines = [broker.machine for broker in facts.asked_brokers() if broker.machine is not None]
    used = [
        1 - machine["log"]["free"] / machine["log"]["total"]
        for machine in machines
        if machine.get("log") and machine["log"]["total"]
    ]
    synced = [machine["syncMs"] for machine in machines if machine.get("syncMs") is not None]
    values += [f"disk={max(used) * 100:.0f}%"] if used else []
    values += [f"fsync={max(synced):.1f}ms"] if synced else []
    return " ".join(values)
