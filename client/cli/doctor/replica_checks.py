"""Checks of replication: slaves that stopped or are late, masters that wait for no slave, two masters. Pure."""

from firearrow._native.store_checks.findings import Severity
from firearrow.client.admin_api.replicas import FOLLOWS, MISSING, Replica
from firearrow.client.base.times import age_text
from firearrow.client.cli.doctor.checks import Found, NotChecked, Trouble, counted, finds
from firearrow.client.cli.doctor.facts import Facts
from firearrow.client.cli.output import bytes_text

NOTE, WARNING, CRITICAL = Severity
LAG_BYTES, LAG_MS = 64 << 20, 30_000
"""A slave that is further behind is late: such a lag is lost if the master's disk is."""
KEPT_APART = {
    "diverged": "decide which of the two logs is kept, and move the other broker's store away",
    "behind the log": "move the slave's store away, so that it copies the whole log; set a longer fileReservedTime",
    "corrupted": "`firearrow store verify` at the master's store",
}
"""States that no waiting ends → what does."""

STOPPED = Trouble(
    CRITICAL,
    "its state is {state!r}: {reason}",
    "nothing is copied any more: what was sent since then has one copy",
    "{fix}",
)
OUT_OF_SYNC = Trouble(
    WARNING,
    "{address}: {state}{lag}",
    "what it has not copied has one copy; with SYNC_MASTER it does not count for inSyncReplicas",
    "`firearrow replica status`; look at its log, its disk, and the network between the two",
)
SLAVE_MISSING = Trouble(
    CRITICAL,
    "{address}: {reason}",
    "what is sent has a copy less than was wanted; with SYNC_MASTER sends may be refused",
    "start it; if it is away for good, `firearrow replica forget {name} --broker {broker}`, or lower the option that "
    "asks for it",
)
MASTER_MISSING = Trouble(
    CRITICAL,
    "its master{address} is not there: {reason}",
    "no client can send to this broker, and what the slaves lack cannot be read",
    "start the master, or make the slave with the most of the log the master: `firearrow promote ADDRESS`",
)
REFUSES = Trouble(
    CRITICAL,
    "{address}: {reason}",
    "no message is taken until enough brokers have a copy, or this one is the master again",
    "`firearrow replica status`; start the slaves that are missing, or lower minInSyncReplicas",
)
WAITS_FOR_NONE = Trouble(
    WARNING,
    "brokerRole is SYNC_MASTER, and inSyncReplicas is {copies}, which counts the master itself",
    "sends are answered before any slave has them: a lost master loses them, as with ASYNC_MASTER",
    "`firearrow config set inSyncReplicas=2 --broker {broker}`",
)
TOO_FEW_COPIES = Trouble(
    CRITICAL,
    "brokerRole is SYNC_MASTER and inSyncReplicas={copies}, and {found} in sync with the master",
    "senders wait, and then get SLAVE_NOT_AVAILABLE or FLUSH_SLAVE_TIMEOUT, or (Apache) are refused: messages have "
    "fewer copies than was wanted",
    "start the slaves that are missing (`firearrow replica status`), or `firearrow config set inSyncReplicas={fitting} "
    "--broker {broker}`",
)
BOTH_MASTERS = Trouble(
    CRITICAL,
    "{address}, which registered with brokerId={number}, is a master as well",
    "both take messages: the two logs differ, and neither has all of them",
    "stop one, and start it with brokerRole=SLAVE and an empty store",
)
SAME_EPOCH = Trouble(
    CRITICAL,
    "{address} and {other} are masters of the same epoch",
    "both take messages, as the name server shows the one or the other: neither has all of them",
    "stop one, and start it with brokerRole=SLAVE and an empty store; keep its old store until you have what it alone "
    "has",
)
SAME_NAME = Trouble(
    CRITICAL,
    "two masters have this name: {addresses} ({source})",
    "name servers show clients the one or the other, with each heartbeat: messages go to both, and no consumer gets "
    "all of them",
    "give one of them another brokerName, or make it a slave (brokerRole=SLAVE, brokerId=1) with an empty store",
)


def _slaves(facts: Facts) -> list[Replica]:
    return [each for each in facts.replicas if not each.is_master and not each.says_master]


def _subject(replica: Replica) -> str:
    number = "" if replica.broker_id is None else f" {replica.broker_id}"
    return f"slave{number} of {replica.broker}"


def _unless_unseen(facts: Facts) -> Found:
    if facts.store is not None:
        yield NotChecked("a store folder does not say it")


@finds(STOPPED)
def replicas_stopped(facts: Facts) -> Found:
    """Slaves that do not follow their master, and will not until an operator acts"""
    yield from _unless_unseen(facts)
    for replica in _slaves(facts):
        fix = KEPT_APART.get(replica.state or "")
        if fix is not None:
            yield STOPPED.of(_subject(replica), state=replica.state, reason=replica.reason, fix=fix)


@finds(OUT_OF_SYNC)
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
        yield OUT_OF_SYNC.of(_subject(replica), address=replica.address, state=state, lag=lag)


@finds(SLAVE_MISSING)
def replicas_missing(facts: Facts) -> Found:
    """Slaves that were in sync once, or have to be there, and are not"""
    yield from _unless_unseen(facts)
    for replica in _slaves(facts):
        if replica.state == MISSING:
            yield SLAVE_MISSING.of(
                _subject(replica),
                address=replica.address or "of an unknown address",
                reason=replica.reason,
                name=replica.address or "never-joined",
                broker=replica.broker,
            )


@finds(MASTER_MISSING)
def masters_missing(facts: Facts) -> Found:
    """Masters that are dead, or that no name server knows while their slaves are there"""
    yield from _unless_unseen(facts)
    for replica in facts.replicas:
        if replica.is_master and not replica.answers:
            yield MASTER_MISSING.of(
                f"broker {replica.broker}",
                address=replica.address and f" {replica.address}",
                reason=replica.reason,
            )


@finds(REFUSES)
def sends_refused(facts: Facts) -> Found:
    """Masters that refuse sends"""
    yield from _unless_unseen(facts)
    for replica in facts.replicas:
        if replica.refuses:
            yield REFUSES.of(f"broker {replica.broker}", address=replica.address, reason=replica.refuses)


@finds(WAITS_FOR_NONE)
def sync_masters_alone(facts: Facts) -> Found:
    """SYNC_MASTERs that wait for no slave"""
    yield from _unless_unseen(facts)
    for broker in facts.asked_brokers():
        copies = broker.number("inSyncReplicas", 1)
        if broker.config.get("brokerRole") == "SYNC_MASTER" and copies <= 1:
            yield WAITS_FOR_NONE.of(f"broker {broker.name}", copies=copies, broker=broker.name)


@finds(TOO_FEW_COPIES)
def replicas_too_few(facts: Facts) -> Found:
    """SYNC_MASTERs that wait for more slaves than are in sync"""
    yield from _unless_unseen(facts)
    for broker in facts.asked_brokers():
        copies = broker.number("inSyncReplicas", 1)
        in_sync = sum(each.in_sync is True for each in _slaves(facts) if each.broker == broker.name)
        if (
            broker.config.get("brokerRole") == "SYNC_MASTER"
            and copies > 1 + in_sync
            and broker.config.get("enableAutoInSyncReplicas") != "true"
            and not _refuses(facts, broker.name)
        ):
            yield TOO_FEW_COPIES.of(
                f"broker {broker.name}",
                copies=copies,
                found=counted(in_sync, "slave is", "slaves are"),
                fitting=in_sync + 1,
                broker=broker.name,
            )


def _refuses(facts: Facts, broker: str) -> bool:
    return any(each.refuses for each in facts.replicas if each.broker == broker)


@finds(BOTH_MASTERS, SAME_EPOCH, SAME_NAME)
def two_masters(facts: Facts) -> Found:
    """Two masters of one broker name"""
    yield from _unless_unseen(facts)
    for replica in facts.replicas:
        subject = f"broker {replica.broker}"
        if replica.says_master and not replica.is_master:
            yield BOTH_MASTERS.of(subject, address=replica.address, number=replica.broker_id)
        elif replica.is_master and replica.other_master:
            yield SAME_EPOCH.of(subject, address=replica.address, other=replica.other_master)
    for rival in facts.rivals:
        yield SAME_NAME.of(
            f"broker {rival.broker}", addresses=" and ".join(rival.addresses), source=rival.source
        )


CHECKS = (
    replicas_stopped,
    replicas_out_of_sync,
    replicas_missing,
    masters_missing,
    sends_refused,
    sync_masters_alone,
    replicas_too_few,
    two_masters,
)
