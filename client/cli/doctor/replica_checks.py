"""Checks of replication: slaves that stopped or are late, masters that wait for no slave, two masters. Pure."""

from firearrow._native.store_checks.findings import Finding, Severity
from firearrow.client.admin_api.replicas import FOLLOWS, MISSING, Replica
from firearrow.client.cli.doctor.checks import Found, NotChecked, check_of
from firearrow.client.cli.doctor.facts import Facts
from firearrow.client.cli.output import bytes_text
from firearrow.client.cli.times import age_text

LAG_BYTES, LAG_MS = 64 << 20, 30_000
"""A slave that is further behind is late: such a lag is lost if the master's disk is."""
KEPT_APART = {
    "diverged": "decide which of the two logs is kept, and move the other broker's store away",
    "behind the log": "move the slave's store away, so that it copies the whole log; set a longer fileReservedTime",
    "corrupted": "`firearrow store verify` at the master's store",
}
"""States that no waiting ends → what does."""


def _slaves(facts: Facts) -> list[Replica]:
    return [each for each in facts.replicas if not each.is_master and not each.says_master]


def _subject(replica: Replica) -> str:
    number = "" if replica.broker_id is None else f" {replica.broker_id}"
    return f"slave{number} of {replica.broker}"


def _unless_unseen(facts: Facts) -> Found:
    if facts.store is not None:
        yield NotChecked("a store folder does not say it")


def replicas_stopped(facts: Facts) -> Found:
    """Slaves that do not follow their master, and will not until an operator acts"""
    yield from _unless_unseen(facts)
    for replica in _slaves(facts):
        fix = KEPT_APART.get(replica.state or "")
        if fix is not None:
            yield Finding(
                Severity.CRITICAL,
                _subject(replica),
                f"its state is {replica.state!r}: {replica.reason}",
                "nothing is copied any more: what was sent since then has one copy",
                fix,
            )


def replicas_out_of_sync(facts: Facts) -> Found:
    """Slaves that are not in sync, not connected, or far behind"""
    yield from _unless_unseen(facts)
    for replica in _slaves(facts):
        late = (replica.lag_bytes or 0) > LAG_BYTES or (replica.lag_ms or 0) > LAG_MS
        if (replica.state or "") in (*KEPT_APART, MISSING) or not (replica.is_trouble or late):
            continue
        lag = "" if replica.lag_bytes is None else f", {bytes_text(replica.lag_bytes)} behind"
        if replica.lag_ms:
            lag += f" ({age_text(replica.lag_ms)})"
        state = replica.reason or (
            replica.state
            if replica.state not in (None, FOLLOWS)
            else "not in sync"
            if replica.in_sync is False
            else "late"
        )
        yield Finding(
            Severity.WARNING,
            _subject(replica),
            f"{replica.address}: {state}{lag}",
            "what it has not copied has one copy; with SYNC_MASTER it does not count for inSyncReplicas",
            "`firearrow replica status`; look at its log, its disk, and the network between the two",
        )


def replicas_missing(facts: Facts) -> Found:
    """Slaves that were in sync once, or have to be there, and are not"""
    yield from _unless_unseen(facts)
    for replica in _slaves(facts):
        if replica.state == MISSING:
            yield Finding(
                Severity.CRITICAL,
                _subject(replica),
                f"{replica.address or 'of an unknown address'}: {replica.reason}",
                "what is sent has a copy less than was wanted; with SYNC_MASTER sends may be refused",
                "start it; if it is away for good, `firearrow replica forget "
                f"{replica.address or 'never-joined'} --broker {replica.broker}`, or lower the option that asks for it",
            )


def masters_missing(facts: Facts) -> Found:
    """Masters that are dead, or that no name server knows while their slaves are there"""
    yield from _unless_unseen(facts)
    for replica in facts.replicas:
        if replica.is_master and not replica.answers:
            yield Finding(
                Severity.CRITICAL,
                f"broker {replica.broker}",
                f"its master{replica.address and f' {replica.address}'} is not there: {replica.reason}",
                "no client can send to this broker, and what the slaves lack cannot be read",
                "start the master, or make the slave with the most of the log the master: `firearrow promote ADDRESS`",
            )


def sends_refused(facts: Facts) -> Found:
    """Masters that refuse sends"""
    yield from _unless_unseen(facts)
    for replica in facts.replicas:
        if replica.refuses:
            yield Finding(
                Severity.CRITICAL,
                f"broker {replica.broker}",
                f"{replica.address}: {replica.refuses}",
                "no message is taken until enough brokers have a copy, or this one is the master again",
                "`firearrow replica status`; start the slaves that are missing, or lower minInSyncReplicas",
            )


def sync_masters_alone(facts: Facts) -> Found:
    """SYNC_MASTERs that wait for no slave"""
    yield from _unless_unseen(facts)
    for broker in facts.asked_brokers():
        if broker.config.get("brokerRole") == "SYNC_MASTER" and broker.number("inSyncReplicas", 1) <= 1:
            yield Finding(
                Severity.WARNING,
                f"broker {broker.name}",
                "brokerRole is SYNC_MASTER, and inSyncReplicas is 1, Apache's default, which counts the master itself",
                "sends are answered before any slave has them: a lost master loses them, as with ASYNC_MASTER",
                f"`firearrow config set inSyncReplicas=2 --broker {broker.name}`",
            )


def two_masters(facts: Facts) -> Found:
    """Two masters of one broker name"""
    yield from _unless_unseen(facts)
    for replica in facts.replicas:
        if replica.says_master and not replica.is_master:
            yield Finding(
                Severity.CRITICAL,
                f"broker {replica.broker}",
                f"{replica.address}, which registered with brokerId={replica.broker_id}, is a master, too",
                "both take messages: the two logs differ, and neither has all of them",
                "stop one, and start it with brokerRole=SLAVE and an empty store",
            )
        elif replica.is_master and replica.other_master:
            yield Finding(
                Severity.CRITICAL,
                f"broker {replica.broker}",
                f"{replica.address} and {replica.other_master} are masters of the same epoch",
                "both take messages, as the name server shows the one or the other: neither has all of them",
                "stop one, and start it with brokerRole=SLAVE and an empty store; keep its old store until you have "
                "what it alone has",
            )


CHECKS = tuple(
    map(
        check_of,
        (
            replicas_stopped,
            replicas_out_of_sync,
            replicas_missing,
            masters_missing,
            sends_refused,
            sync_masters_alone,
            two_masters,
        ),
    )
)
