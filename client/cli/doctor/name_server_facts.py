"""Facts of name servers, and of brokers that they do not know: each name server is asked alone. Loop thread.

What else should be there is known from the name servers that contexts and brokers name beside those given, from what
FireArrow's name servers lost or refused, from order configurations, and from what the doctor saw before.
"""

import asyncio
import contextlib
import socket
from collections.abc import Iterable

from firearrow._native.wire.codes import RequestCode, ResponseCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.client.admin_api import records
from firearrow.client.admin_api.admin import Admin
from firearrow.client.admin_api.records import Members, read
from firearrow.client.admin_api.replicas import MISSING
from firearrow.client.base.errors import BrokerError, ClientError, ConfigError
from firearrow.client.base.options import ClientOptions, TlsOptions
from firearrow.client.base.times import now_ms
from firearrow.client.cli.contexts import load_contexts
from firearrow.client.cli.doctor import certificate_dates
from firearrow.client.cli.doctor.facts import (
    Absent,
    BrokerFault,
    Certificate,
    Facts,
    NameServer,
    Rival,
    host_of,
)
from firearrow.client.cli.doctor.name_server_checks import LOST, MASTER, REPLACED, is_fresh
from firearrow.client.cli.doctor.seen_brokers import SeenBroker, SeenBrokers

FAULTS_MAX = 1024
ORDERS = "ORDER_TOPIC_CONFIG"
CONNECT_S = 2.0
OTHERS_MAX = 16
"""Name servers beside those given that are asked."""


def addresses_of(text: str) -> list[str]:
    """Of `host:port;host:port`, each once."""
    return list(dict.fromkeys(each.strip().rpartition("/")[2] for each in text.split(";") if each.strip()))


async def ask_name_servers(admin: Admin, addresses: Iterable[str], source: str = "") -> list[NameServer]:
    found = [NameServer(address, source) for address in addresses]
    await asyncio.gather(*(_ask(admin, each) for each in found))
    return found


async def _ask(admin: Admin, server: NameServer) -> None:
    host, _, port = server.address.rpartition(":")
    try:
        infos = await asyncio.get_running_loop().getaddrinfo(
            host.strip("[]"), int(port), type=socket.SOCK_STREAM
        )
        server.hosts = tuple(dict.fromkeys(str(info[4][0]) for info in infos))
    except (OSError, ValueError) as error:
        server.fault = getattr(error, "strerror", None) or str(error)
        return
    ask = admin.calls.ask
    try:
        info = read(
            (await ask(server.address, RequestCode.GET_BROKER_CLUSTER_INFO)).body, records.cluster_info
        )
        server.brokers, server.clusters = info.brokers, info.clusters
        server.orders = await _orders(admin, server.address)
        with contextlib.suppress(BrokerError):  # Apache's
            answer = await ask(server.address, RequestCode.LIST_BROKER_FAULTS)
            server.broker_faults = read(answer.body, _faults)
    except ClientError as error:
        is_other = error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        server.fault = "it is a broker without a name server" if is_other else str(error)


async def _orders(admin: Admin, address: str) -> dict[str, list[str]]:
    """Topic → brokers, of `broker-a:4;broker-b:4`."""
    try:
        answer = await admin.calls.ask(address, RequestCode.GET_KVLIST_BY_NAMESPACE, {"namespace": ORDERS})
    except BrokerError:  # there is none
        return {}
    table = read(answer.body, lambda body: dict(body.members("table").pairs()))
    return {
        str(topic): [part.rpartition(":")[0] for part in str(text).split(";") if ":" in part]
        for topic, text in table.items()
    }


def _faults(answer: Members) -> list[BrokerFault]:
    now = now_ms()
    return [
        BrokerFault(
            each.text("fault"),
            each.text("cluster"),
            each.text("broker"),
            each.number("brokerId"),
            each.text("address"),
            each.text("other"),
            now - each.number("ageMs"),
            each.text("reason"),
        )
        for each in map(Members, answer.items("faults")[:FAULTS_MAX])
    ]


async def look_around(admin: Admin, facts: Facts) -> None:
    """What name servers do not show by themselves; after the brokers were asked."""
    await _other_name_servers(admin, facts)
    await _rivals(admin, facts)
    await _absent(facts)


async def _other_name_servers(admin: Admin, facts: Facts) -> None:
    """A context that has one of the given name servers is of the same cluster. A broker's list may have addresses that
    mean another machine from here: those of loopback are left out, unless all is on this one."""
    given = {each.address for each in facts.name_servers}
    local = all(each.is_loopback for each in facts.name_servers)
    named: dict[str, tuple[str, bool]] = {}
    try:
        contexts = load_contexts().by_name
    except ConfigError:  # commands without --namesrv report it
        contexts = {}
    for name, context in contexts.items():
        theirs = addresses_of(context.namesrv)
        if given & set(theirs):
            named |= dict.fromkeys(theirs, (f"context {name} has it beside those given", True))
    for broker in facts.asked_brokers():
        text = broker.config.get("namesrvAddr", "")
        for address in addresses_of(text):
            named.setdefault(address, (f"broker {broker.name} has it in namesrvAddr", False))
    servers = [
        NameServer(address, source, is_from_here)
        for address, (source, is_from_here) in named.items()
        if address not in given and ":" in address
    ][:OTHERS_MAX]
    await asyncio.gather(*(_ask(admin, each) for each in servers))
    known = {host for each in facts.name_servers for host in _places(each)}
    facts.other_name_servers = [
        each for each in servers if not (each.is_loopback and not local) and not _places(each) & known
    ]


def _places(server: NameServer) -> set[tuple[str, str]]:
    """Its host's addresses, with its port: one name server may have several names."""
    port = server.address.rpartition(":")[2]
    return {(host, port) for host in server.hosts}


# ---- two masters ----


async def _rivals(admin: Admin, facts: Facts) -> None:
    pairs: dict[tuple[str, ...], str] = {}
    answering = [each for each in facts.name_servers if each.fault is None]
    again = await ask_name_servers(admin, [each.address for each in answering])
    for one in answering:
        for two in (*answering, *again):
            for name, ids in one.brokers.items():
                first, second = ids.get(MASTER), two.brokers.get(name, {}).get(MASTER)
                if first is not None and second is not None and first != second:
                    pairs[name, *sorted((first, second))] = (
                        f"of name server {one.address}"
                        if one.address == two.address
                        else f"of name servers {one.address} and {two.address}"
                    )
        for fault in one.broker_faults or ():
            if fault.broker_id != MASTER or fault.fault == LOST or not is_fresh(facts, fault):
                continue
            known = one.brokers.get(fault.broker, {}).get(MASTER, fault.address)
            other = fault.other if fault.fault == REPLACED else known
            if other != fault.address or fault.fault == REPLACED:
                pairs[fault.broker, *sorted((fault.address, other))] = f"of name server {one.address}"
    for (name, first, second), source in pairs.items():
        if first == second:
            facts.rivals.append(Rival(name, (f"both at {first}",), source))
        elif await _are_two_masters(admin, name, first, second):
            facts.rivals.append(Rival(name, (first, second), source))


async def _are_two_masters(admin: Admin, name: str, first: str, second: str) -> bool:
    started = []
    for address in (first, second):
        try:
            answer = await admin.calls.ask(address, RequestCode.GET_BROKER_CONFIG)
            runtime = await admin.calls.ask(address, RequestCode.GET_BROKER_RUNTIME_INFO)
        except ClientError:
            return False
        config = _properties(answer)
        if config.get("brokerName", name) != name or config.get("brokerRole") == "SLAVE":
            return False
        started.append(read(runtime.body, records.texts).get("bootTimestamp"))
    return started[0] != started[1]


def _properties(answer: RemotingCommand) -> dict[str, str]:
    lines = answer.body.decode("utf-8", "replace").splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))


# ---- brokers that are absent ----


async def _absent(facts: Facts) -> None:
    answering = [each for each in (*facts.name_servers, *facts.other_name_servers) if each.fault is None]
    if not answering:
        return
    known = {(name, number) for each in answering for name, ids in each.brokers.items() for number in ids}
    expected: dict[tuple[str, int], Absent] = {}
    for server in answering:
        for fault in server.broker_faults or ():
            if fault.fault == LOST:
                expected.setdefault(
                    (fault.broker, fault.broker_id),
                    Absent(
                        fault.broker,
                        fault.broker_id,
                        fault.address,
                        fault.at_ms,
                        f"name server {server.address} lost it",
                        answers=False,
                    ),
                )
    for seen in _see(facts):
        source = "a doctor saw it here last"
        expected.setdefault((seen.broker, seen.broker_id), Absent(*seen, source, answers=False))
    for topic, name in _ordered(facts):
        source = f"the order configuration of topic {topic} names it"
        expected.setdefault((name, MASTER), Absent(name, MASTER, "", 0, source, answers=False))
    names = {name for name, _ in known}
    addresses = {at for each in answering for ids in each.brokers.values() for at in ids.values()}
    absent = [
        each
        for key, each in sorted(expected.items())
        if key not in known
        and not (each.broker_id == MASTER and each.broker in names)  # `masters-missing` reports it
        and each.address not in addresses  # it has another name or id now: a slave may have been promoted
        and not _is_missed(facts, each)
    ]
    answers = await asyncio.gather(*(_answers(each.address) for each in absent))
    facts.absent = [each._replace(answers=found) for each, found in zip(absent, answers, strict=True)]


def _see(facts: Facts) -> list[SeenBroker]:
    """Those that were seen before, and remember those that are there now."""
    seen = SeenBrokers()
    answering = [each for each in facts.name_servers if each.fault is None]
    before = list(seen.at([each.address for each in answering], facts.now_ms))
    for each in answering:
        seen.see(each.address, each.brokers, facts.now_ms)
    try:
        seen.save()
    except OSError as error:
        facts.unasked.append(
            f"{seen.path} cannot be written ({error.strerror}): brokers that die are forgotten"
        )
    return before


def _ordered(facts: Facts) -> set[tuple[str, str]]:
    return {
        (topic, name) for each in facts.name_servers for topic, names in each.orders.items() for name in names
    }


def _is_missed(facts: Facts, absent: Absent) -> bool:
    """Whether its master reports a slave as missing."""
    return any(
        each.broker == absent.broker
        and each.state == MISSING
        and (each.address == absent.address or each.broker_id in (absent.broker_id, None))
        for each in facts.replicas
    )


async def _answers(address: str) -> bool:
    if ":" not in address:
        return False
    try:
        async with asyncio.timeout(CONNECT_S):
            _, writer = await asyncio.open_connection(host_of(address), int(address.rpartition(":")[2]))
    except (OSError, ValueError):
        return False
    writer.transport.abort()
    return True


# ---- certificates ----


async def read_certificates(options: ClientOptions, facts: Facts) -> None:
    """Of servers that speak TLS, and of files of brokers and of this client."""
    files = list[Certificate]()
    places = {each.address: f"name server {each.address}" for each in facts.name_servers if options.tls}
    for broker in facts.brokers.values():
        mode = broker.config.get("tls.server.mode", "disabled")
        listens = mode != "disabled" and (mode or broker.config.get("tls.server.certPath"))
        if options.tls or listens:
            places.setdefault(broker.address, f"broker {broker.name}")
        for each in (broker.machine or {}).get("certificates", ()):
            files.append(Certificate(f"broker {broker.name}", each["path"], each["beginsMs"], each["endsMs"]))
    if options.tls:
        for replica in facts.replicas:
            if replica.address:
                places.setdefault(replica.address, f"slave {replica.broker_id} of {replica.broker}")
    found = await asyncio.gather(
        *(certificate_dates.of_server(holder, address) for address, holder in places.items())
    )
    facts.certificates = [*(each for each in found if each is not None), *files]
    if isinstance(options.tls, TlsOptions):
        facts.certificates += certificate_dates.of_files(options.tls)


async def forget(admin: Admin, options: ClientOptions, broker: str) -> int:
    """Do not expect this broker any more; how many places knew of it. ClientError: a name server refuses."""
    seen = SeenBrokers()
    count = seen.forget(broker)
    if count:
        seen.save()
    for server in await ask_name_servers(admin, addresses_of(options.name_server or "")):
        for fault in server.broker_faults or ():
            if fault.broker == broker:
                ext = {
                    "brokerName": broker,
                    "brokerId": str(fault.broker_id),
                    "brokerAddr": fault.address,
                    "clusterName": fault.cluster,
                }
                await admin.calls.ask(server.address, RequestCode.UNREGISTER_BROKER, ext)
                count += 1
    return count
