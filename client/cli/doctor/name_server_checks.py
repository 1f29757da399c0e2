"""Checks of name servers and of what they know: brokers that are absent, names of clusters, certificates. Pure."""

from collections.abc import Iterator, Sequence
from itertools import combinations

from firearrow._native.store_checks.findings import Finding, Severity
from firearrow.client.base.times import age_text, time_text
from firearrow.client.cli.doctor.checks import Found, NotChecked, Trouble, counted, finds, shortened
from firearrow.client.cli.doctor.facts import BrokerFault, Facts, NameServer

NOTE, WARNING, CRITICAL = Severity
MASTER = 0
EXPIRES_SOON_MS = 30 * 86_400_000
EXPIRES_NOW_MS = 3 * 86_400_000
FRESH_MS = 150_000
SIMILAR_CHARS_MIN = 5
"""Shorter names of clusters are not compared: `dev` and `dev2` are two."""
REFUSED, REPLACED, LOST = "refused", "replaced", "lost"
"""The faults of LIST_BROKER_FAULTS."""

UNANSWERED = Trouble(
    WARNING,
    "it does not answer: {fault}",
    "clients and brokers that are given it wait for it, and have one name server less when another one fails",
    "start it, or correct what is wrong with it; else take it out of the list of each client and broker (`--namesrv`, "
    "NAMESRV_ADDR, namesrvAddr)",
)
UNANSWERED_OTHER = Trouble(
    WARNING,
    "it does not answer: {fault}; {source}",
    "it is of this cluster as well: its brokers may register with it alone",
    "start it, or take it out of that list",
)
UNREGISTERED = Trouble(
    WARNING,
    "name server {address}, which is in its namesrvAddr, does not have it: {fault}",
    "clients that ask this name server do not find the broker",
    "start the name server, or do what the fault says; or take it out of namesrvAddr, and restart the broker",
)
UNRESOLVED = Trouble(
    WARNING,
    "its host name is not known here: {fault}",
    "clients with this list cannot use it: a typing error, or a name that only another network knows",
    "correct the name, or give its address",
)
UNKNOWN_THERE = Trouble(
    CRITICAL,
    "it does not know {brokers}, which {others} {know}",
    "clients find a broker or not, as they ask the one name server or the other",
    "give each broker all name servers: `firearrow broker --namesrv 'A:9876;B:9876'` (Apache: namesrvAddr)",
)
KNOWN_ELSEWHERE = Trouble(
    CRITICAL,
    "{address} ({source}) knows {brokers}, and none of the name servers given does",
    "clients with this list do not find these brokers",
    "give clients and brokers the same name servers",
)
OTHER_ADDRESS = Trouble(
    WARNING,
    "it has the address {one} at {first}, and {two} at {second}",
    "clients go to the one or the other, as they ask this name server or that: they are two brokers of one name, or "
    "one has an old address",
    "stop the broker that is not meant; if there is only one, restart it with the address that clients reach "
    "(`--advertise`)",
)
ABSENT_MASTER = Trouble(
    WARNING,
    "no name server knows it: {source}{seen}{address}",
    "no client can read what it has, nor send to it, and commands do not show it",
    "start it{hint}; if it was taken away for good, `firearrow doctor --forget {broker}`",
    CRITICAL,
)
ABSENT_SLAVE = Trouble(
    WARNING,
    "no name server knows it: {source}{seen}{address}",
    "what is sent has a copy less than before",
    "start it{hint}; if it was taken away for good, `firearrow doctor --forget {broker}`",
)
REFUSED_BROKER = Trouble(
    CRITICAL,
    "name server {name_server} refused its registration {time} ago: {reason}",
    "as long as it is refused, no client finds it",
    "correct its brokerName, brokerId or brokerClusterName, and restart it",
)
MISSPELT = Trouble(
    WARNING,
    "it has {brokers}, and cluster {other} has {others}: the names hardly differ",
    "a topic or group that is made in one cluster is not made at the brokers of the other",
    "if both are one cluster, correct brokerClusterName of {wrong}, and restart {them}",
)
TWO_CLUSTERS = Trouble(
    CRITICAL,
    "brokers of this name are in the clusters {clusters}",
    "name servers keep the one or the other: master and slave do not find each other",
    "give all brokers of the name the same brokerClusterName",
)
EXPIRED = Trouble(
    CRITICAL,
    "its certificate ({place}) has expired {age} ago",
    "clients that check it do not connect",
    "renew it, and replace the file: FireArrow reads it again by itself",
)
EXPIRES = Trouble(
    WARNING,
    "its certificate ({place}) ends in {age}, on {time}",
    "from then on, clients that check it do not connect",
    "renew it, and replace the file: FireArrow reads it again by itself",
    CRITICAL,
)
NOT_YET_VALID = Trouble(
    CRITICAL,
    "its certificate ({place}) is not valid before {time}",
    "clients that check it do not connect until then",
    "compare the clocks of both machines; else make the certificate again",
)


def _unless_store(facts: Facts) -> Found:
    if facts.store is not None:
        yield NotChecked("a store folder does not say it")


@finds(UNANSWERED, UNANSWERED_OTHER, UNRESOLVED)
def name_servers(facts: Facts) -> Found:
    """Name servers that do not answer, though others do"""
    yield from _unless_store(facts)
    for each in facts.name_servers:
        if each.fault is not None:
            trouble = UNANSWERED if each.is_resolved else UNRESOLVED
            yield trouble.of(f"name server {each.address}", fault=each.fault)
    for each in facts.other_name_servers:
        if each.fault is not None and each.is_from_here:
            yield UNANSWERED_OTHER.of(f"name server {each.address}", fault=each.fault, source=each.source)
        elif each.fault is not None:
            yield NotChecked(
                f"it does not answer here: {each.fault}; {each.source}", f"name server {each.address}"
            )


@finds(UNREGISTERED)
def registrations(facts: Facts) -> Found:
    """Brokers that cannot register with one of their name servers"""
    yield from _unless_store(facts)
    for broker in facts.asked_brokers():
        for each in (broker.status or {}).get("nameServers", ()):
            if each["fault"] and not each["registered"]:
                yield UNREGISTERED.of(f"broker {broker.name}", address=each["address"], fault=each["fault"])


@finds(UNKNOWN_THERE, KNOWN_ELSEWHERE, OTHER_ADDRESS)
def name_servers_differ(facts: Facts) -> Found:
    """Name servers that do not know the same brokers"""
    yield from _unless_store(facts)
    answering = [each for each in facts.name_servers if each.fault is None]
    known = {broker for each in answering for broker in _brokers_of(each)}
    for each in answering:
        unknown = known - _brokers_of(each)
        if unknown:
            others = [other.address for other in answering if _brokers_of(other) & unknown]
            yield UNKNOWN_THERE.of(
                f"name server {each.address}",
                brokers=_named(unknown),
                others=shortened(others),
                know="knows" if len(others) == 1 else "know",
            )
    for each in facts.other_name_servers:
        unknown = _brokers_of(each) - known
        if each.fault is None and unknown:
            yield KNOWN_ELSEWHERE.of(
                "name servers", address=each.address, source=each.source, brokers=_named(unknown)
            )
    yield from _other_addresses(answering)


def _brokers_of(name_server: NameServer) -> set[tuple[str, int]]:
    return {(name, number) for name, ids in name_server.brokers.items() for number in ids}


def _named(brokers: set[tuple[str, int]]) -> str:
    """`broker a, slave 1 of b`"""
    return shortened(
        f"broker {name}" if number == MASTER else f"slave {number} of {name}"
        for name, number in sorted(brokers)
    )


def _other_addresses(answering: Sequence[NameServer]) -> Iterator[Finding[str]]:
    """An address of this machine may be written in several ways: that of loopback is not compared."""
    for first, second in combinations(answering, 2):
        for name, number in sorted(_brokers_of(first) & _brokers_of(second)):
            one, two = first.brokers[name][number], second.brokers[name][number]
            if one.rpartition(":")[2] != two.rpartition(":")[2]:
                yield OTHER_ADDRESS.of(
                    f"broker {name}" if number == MASTER else f"slave {number} of {name}",
                    one=one,
                    first=first.address,
                    two=two,
                    second=second.address,
                )


@finds(ABSENT_MASTER, ABSENT_SLAVE)
def absent_brokers(facts: Facts) -> Found:
    """Brokers that were there, or have to be there, and that no name server knows"""
    yield from _unless_store(facts)
    for each in facts.absent:
        is_master = each.broker_id == MASTER
        trouble = ABSENT_MASTER if is_master else ABSENT_SLAVE
        yield trouble.of(
            f"broker {each.broker}" if is_master else f"slave {each.broker_id} of {each.broker}",
            is_worst=each.source.startswith("name server"),
            source=each.source,
            seen=f" {age_text(max(facts.now_ms - each.seen_ms, 0))} ago" if each.seen_ms else "",
            address=f", at {each.address}" if each.address else "",
            hint=": it answers, so give it these name servers (--namesrv)" if each.answers else "",
            broker=each.broker,
        )


def is_fresh(facts: Facts, fault: BrokerFault) -> bool:
    """Whether it may still last: brokers register again each minute at least."""
    return facts.now_ms - fault.at_ms < FRESH_MS


@finds(REFUSED_BROKER)
def refused_brokers(facts: Facts) -> Found:
    """Brokers whose registration a name server refuses"""
    yield from _unless_store(facts)
    answering = [each for each in facts.name_servers if each.fault is None]
    if answering and all(each.broker_faults is None for each in answering):
        yield NotChecked("only FireArrow's name server says it")
    for name_server in answering:
        for each in name_server.broker_faults or ():
            is_rival = any(each.address in rival.addresses for rival in facts.rivals)
            if each.fault == REFUSED and is_fresh(facts, each) and not is_rival:
                number = "" if each.broker_id == MASTER else f" (brokerId {each.broker_id})"
                yield REFUSED_BROKER.of(
                    f"broker {each.broker}{number} at {each.address}",
                    name_server=name_server.address,
                    time=age_text(max(facts.now_ms - each.at_ms, 0)),
                    reason=each.reason,
                )


@finds(MISSPELT, TWO_CLUSTERS)
def cluster_names(facts: Facts) -> Found:
    """Clusters with almost the same name, and brokers of one name in two clusters"""
    yield from _unless_store(facts)
    clusters: dict[str, set[str]] = {}
    for each in facts.name_servers:
        for cluster, brokers in each.clusters.items():
            clusters.setdefault(cluster, set()).update(brokers)
    for one, two in combinations(sorted(clusters), 2):
        if is_similar(one, two):
            few, many = sorted((one, two), key=lambda cluster: (len(clusters[cluster]), cluster))
            count = len(clusters[few])
            yield MISSPELT.of(
                f"cluster {few}",
                brokers=counted(count, "broker"),
                other=many,
                others=counted(len(clusters[many]), "broker"),
                wrong=shortened(sorted(clusters[few])),
                them="it" if count == 1 else "them",
            )
    for name in sorted({name for brokers in clusters.values() for name in brokers}):
        of = sorted(cluster for cluster, brokers in clusters.items() if name in brokers)
        if len(of) > 1:
            yield TWO_CLUSTERS.of(f"broker {name}", clusters=" and ".join(of))


def is_similar(one: str, two: str) -> bool:
    """Whether one name may be the other with a typing error: another case or other separators, one letter too many, too
    few, wrong, or two swapped. Numbers and last letters distinguish names: `eu1` and `eu2`, `clusterA` and `clusterB`.
    """
    plain_one, plain_two = ("".join(filter(str.isalnum, name)).casefold() for name in (one, two))
    if plain_one == plain_two:
        return True
    short, long = sorted((plain_one, plain_two), key=len)
    if len(short) < SIMILAR_CHARS_MIN:
        return False
    at = next((place for place, (a, b) in enumerate(zip(short, long, strict=False)) if a != b), len(short))
    if len(short) == len(long):
        swapped = short[at : at + 2] == long[at : at + 2][::-1] and short[at + 2 :] == long[at + 2 :]
        is_last = at == len(short) - 1
        one_wrong = not is_last and short[at + 1 :] == long[at + 1 :]
        return (swapped or one_wrong) and (short[at] + long[at]).isalpha()
    return (
        len(long) == len(short) + 1
        and short[at:] == long[at + 1 :]
        and long[at].isalpha()
        and (at < len(short) or long[at] == long[at - 1])
    )


@finds(EXPIRED, EXPIRES, NOT_YET_VALID)
def certificates(facts: Facts) -> Found:
    """Certificates that have expired, expire soon, or are not valid yet"""
    yield from _unless_store(facts)
    for each in facts.certificates:
        left_ms = each.ends_ms - facts.now_ms
        if left_ms <= 0:
            yield EXPIRED.of(each.holder, place=each.place, age=age_text(-left_ms))
        elif each.begins_ms > facts.now_ms:
            yield NOT_YET_VALID.of(each.holder, place=each.place, time=time_text(each.begins_ms))
        elif left_ms < EXPIRES_SOON_MS:
            yield EXPIRES.of(
                each.holder,
                is_worst=left_ms < EXPIRES_NOW_MS,
                place=each.place,
                age=age_text(left_ms),
                time=time_text(each.ends_ms),
            )


CHECKS = (
    name_servers,
    registrations,
    name_servers_differ,
    absent_brokers,
    refused_brokers,
    cluster_names,
    certificates,
)
