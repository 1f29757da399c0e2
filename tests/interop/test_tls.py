"""The scenarios of Apache's TlsTest, TlsIT, TlsMixIT and TlsMix2IT with Java's clients, on our broker and on Apache's.

Scenarios have the names of Apache's methods where there are any. One JVM for each client: what Java reads from system
properties is set before a client of its library starts, as TlsTest does.
"""

import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import trustme

from firearrow.client import ClientOptions, Message, TlsOptions
from firearrow.client.blocking import Producer
from tests.interop.driver import JVMS, Driver, Failed
from tests.interop.messages import hexed
from tests.interop.peers import Apache, FireArrow, address
from tests.interop.toolchain import java_class_path, need
from tests.support.certificates import CertificateFiles

pytestmark = pytest.mark.interop

CHECKED = {"tls.server.need.client.auth": "require", "tls.server.authClient": "true"}
OPTIONAL = CHECKED | {"tls.server.need.client.auth": "optional"}
PASSWORD = "open sesame"
NOWHERE = "127.0.0.1:1"
"""Operations name the broker's name server themselves."""


class Scenario(NamedTuple):
    """`presents`: the server's certificate; `own`: the client's; `trusted`: whose servers it trusts, None: all.

    `locked`: keys are encrypted. `filed`: options are in files that `tls.config.file` names.
    """

    name: str
    server: dict[str, str]
    works: bool
    tls: bool = True
    presents: str = "server"
    own: str | None = None
    trusted: str | None = None
    locked: bool = False
    filed: bool = False


SCENARIOS = (
    Scenario("basicClientServerIntegrationTest", CHECKED, works=True, own="client", trusted="authority"),
    Scenario("serverRejectsUntrustedClientCert", CHECKED, works=False, own="stranger", trusted="authority"),
    Scenario("noClientAuthFailure", CHECKED, works=False, trusted="authority"),
    Scenario("clientRejectsUntrustedServerCert", {}, works=False, presents="stranger", trusted="authority"),
    Scenario("clientAcceptsUntrustedServerCert", {}, works=True, presents="stranger"),
    Scenario("encryptedKeys", CHECKED, works=True, own="client", trusted="authority", locked=True),
    Scenario("serverNotNeedClientAuth", {}, works=True, trusted="authority"),
    Scenario("serverWantClientAuth", OPTIONAL, works=True, own="client", trusted="authority"),
    Scenario("serverWantClientAuth_ButClientNoCert", OPTIONAL, works=True, trusted="authority"),
    Scenario("serverAcceptsUntrustedClientCert", {}, works=True, own="stranger", trusted="authority"),
    Scenario("serverAcceptsUnAuthClient", {"tls.server.mode": "permissive"}, works=True, tls=False),
    Scenario("enforcingServerRejectsPlainClient", {"tls.server.mode": "enforcing"}, works=False, tls=False),
    Scenario("serverRejectsSSLClient", {"tls.server.mode": "disabled"}, works=False),
    Scenario(
        "testTlsConfigThroughFile",
        CHECKED,
        works=True,
        own="client",
        trusted="authority",
        locked=True,
        filed=True,
    ),
)
WITH_BOTH = SCENARIOS[:6]
"""Those that run against Apache's broker, too; the others only with `--against apache`."""
WITH_4 = ("basicClientServerIntegrationTest", "enforcingServerRejectsPlainClient")
"""Those that always run with Java's client 4, too; the others only with `--long`."""
SHOWN_ELSEWHERE = (
    "encryptedKeys",
    "serverNotNeedClientAuth",
    "serverWantClientAuth",
    "serverAcceptsUnAuthClient",
    "clientAcceptsUntrustedServerCert",
)
"""In a file, while certificates are replaced, by clients of both kinds (two), and by an untrusted client."""


def is_short(client: str, name: str) -> bool:
    return name not in SHOWN_ELSEWHERE if client == "java5" else name in WITH_4


def of_name(scenario: Scenario) -> str:
    return scenario.name


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    return CertificateFiles(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module", params=["java5", pytest.param("java4", marks=pytest.mark.long)])
def client(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    name = str(request.param)
    need(lambda: java_class_path(JVMS[name]))
    with Driver(name, NOWHERE, tmp_path_factory.mktemp(name)) as driver:
        yield driver


@pytest.fixture
def kind(request: pytest.FixtureRequest) -> type[FireArrow | Apache]:
    """Of the broker: ours, or with `--against apache` Apache's."""
    if request.config.getoption("--against", "firearrow") == "apache":
        need(lambda: java_class_path("client5"))
        return Apache
    return FireArrow


def key_of(files: CertificateFiles, name: str, prefix: str, locked: bool) -> dict[str, str]:
    if not locked:
        return {f"{prefix}.keyPath": files.path(f"{name}.key")}
    return {f"{prefix}.keyPath": files.lock(name, PASSWORD), f"{prefix}.keyPassword": PASSWORD}


def server_options(files: CertificateFiles, scenario: Scenario) -> dict[str, str]:
    options = {
        "tls.test.mode.enable": "false",
        "tls.server.certPath": files.path(f"{scenario.presents}.pem"),
        "tls.server.trustCertPath": files.path("authority.pem"),
    }
    options |= key_of(files, scenario.presents, "tls.server", scenario.locked) | scenario.server
    return in_file(files, "server", options) if scenario.filed else options


def client_options(files: CertificateFiles, scenario: Scenario, client: Driver) -> dict[str, str]:
    """4.9.8's netty cannot decrypt keys of today, so its key is as it is."""
    locked = scenario.locked and client.name != "java4"
    options = {}
    if scenario.own is not None:
        options["tls.client.certPath"] = files.path(f"{scenario.own}.pem")
        options |= key_of(files, scenario.own, "tls.client", locked)
    if scenario.trusted is not None:
        options["tls.client.authServer"] = "true"
        options["tls.client.trustCertPath"] = files.path(f"{scenario.trusted}.pem")
    if scenario.filed:
        options = in_file(files, "client", options)
    return options | {"tls.enable": str(scenario.tls).lower()}


def in_file(files: CertificateFiles, name: str, options: dict[str, str]) -> dict[str, str]:
    path = files.folder / f"{name}.properties"
    path.write_text("".join(f"{key}={text}\n" for key, text in options.items()))
    return {"tls.config.file": str(path)}


def end(peer: FireArrow | Apache) -> None:
    """Ours has to end well; Apache's takes seconds for that, and is killed."""
    if peer.kind == "firearrow":
        peer.stop()


def reaches(client: Driver, name_server: str, options: dict[str, str]) -> bool:
    """A new client with these options can send, and mqadmin 5 can ask."""
    client.ask("tls", **options)
    try:
        client.ask("send", group="P", topic="TlsTopic", body=hexed("hidden"), nameServer=name_server)
    except Failed:
        return False
    finally:
        client.ask("rest")
    if client.name == "java5":
        [output] = client.ask("mqadmin", argument=["clusterList"], nameServer=name_server)
        assert "DefaultCluster" in str(output["text"])
    return True


@pytest.mark.parametrize(
    ("client", "scenario"),
    [
        pytest.param(
            client,
            each,
            id=f"{client}-{each.name}",
            marks=() if is_short(client, each.name) else pytest.mark.long,
        )
        for client in JVMS
        for each in SCENARIOS
    ],
    indirect=["client"],
)
def test_scenario(
    tmp_path: Path,
    files: CertificateFiles,
    kind: type[FireArrow | Apache],
    client: Driver,
    scenario: Scenario,
) -> None:
    with kind(tmp_path / "store", server_options(files, scenario)) as peer:
        assert reaches(client, peer.name_server, client_options(files, scenario, client)) == scenario.works
        end(peer)


@pytest.mark.long
@pytest.mark.parametrize("client", ["java5"], indirect=True)
@pytest.mark.parametrize(
    "scenario",
    WITH_BOTH,
    ids=of_name,
)
def test_apaches_broker(tmp_path: Path, files: CertificateFiles, client: Driver, scenario: Scenario) -> None:
    with Apache(tmp_path / "store", server_options(files, scenario)) as peer:
        assert reaches(client, peer.name_server, client_options(files, scenario, client)) == scenario.works


def test_tls_and_plain_clients_share_topics(
    tmp_path: Path, files: CertificateFiles, kind: type[FireArrow | Apache], client: Driver
) -> None:
    """TlsIT, TlsMixIT, TlsMix2IT: whoever sends over TLS or plainly, consumers of both kinds get all. A broker that
    requires certificates serves no plain clients."""
    [mixed] = [each for each in SCENARIOS if each.name == "serverWantClientAuth"]
    checking = client_options(files, mixed, client)
    with kind(tmp_path / "store", server_options(files, mixed)) as peer:
        at = {"topic": "Mixed", "nameServer": peer.name_server}
        bodies = {way: hexed(*(f"{way} {number}" for number in range(16))) for way in ("tls", "plain")}
        members = []
        for way, options in (("tls", checking), ("plain", {"tls.enable": "false"})):
            client.ask("tls", **options)
            client.ask("send", group=f"Mixed-{way}", body=bodies[way], **at)
            members.append(f"{client.name}-{way}")
            client.ask("consume", name=members[-1], group=f"mixed-{way}", **at)
        for member in members:
            client.await_bodies([member], bodies["tls"] + bodies["plain"])
            client.ask("stop", name=member)
        client.ask("rest")
        end(peer)


def test_certificates_are_replaced(tmp_path: Path, kind: type[FireArrow | Apache], client: Driver) -> None:
    """reloadSslContextForServer: connections stay, new ones get the new certificate, which another authority signed."""
    files, other = CertificateFiles(tmp_path / "tls"), trustme.CA(key_type=trustme.KeyType.ECDSA)
    other.cert_pem.write_to_path(files.path("other.pem"))
    trusting = Scenario("", {"tls.server.mode": "enforcing"}, works=True, trusted="authority")
    before, after, last = hexed("before", "after", "last")
    with kind(tmp_path / "store", server_options(files, trusting)) as peer:
        at = {"topic": "Reloaded", "nameServer": peer.name_server}
        client.ask("tls", **client_options(files, trusting, client))
        client.ask("send", group="Old", body=before, **at)
        member = f"{client.name}-member"
        client.ask("consume", name=member, group="reloaded", **at)
        client.await_bodies([member], [before])
        old = [ssl.get_server_certificate(address(each)) for each in (peer.address, peer.name_server)]
        files.issue("server", other)
        deadline = time.monotonic() + 20
        for at_address, seen in zip((peer.address, peer.name_server), old, strict=True):
            while ssl.get_server_certificate(address(at_address)) == seen:
                assert time.monotonic() < deadline, "the new certificate is not in use"
                time.sleep(0.1)
        client.ask("send", group="Old", body=after, **at)
        client.ask("stopProducer", group="Old")
        assert not reaches(client, peer.name_server, client_options(files, trusting, client))
        client.ask("tls", **client_options(files, trusting._replace(trusted="other"), client))
        client.ask("send", group="New", body=last, **at)
        client.await_bodies([member], [before, after, last])
        client.ask("stop", name=member)
        client.ask("rest")
        end(peer)


@pytest.mark.parametrize("client", ["java5"], indirect=True)
def test_our_client_and_javas_with_apaches_broker(
    tmp_path: Path, files: CertificateFiles, client: Driver
) -> None:
    checked = SCENARIOS[0]
    with Apache(tmp_path / "store", server_options(files, checked)) as peer:
        assert reaches(client, peer.name_server, client_options(files, checked, client))
        tls = TlsOptions(
            authority=files.path("authority.pem"),
            certificate=files.path("client.pem"),
            key=files.path("client.key"),
        )
        with Producer("tls", client=ClientOptions(name_server=peer.name_server, tls=tls)) as producer:
            assert producer.send(Message("OurTls", b"hidden" * 10_000)).status.name == "SEND_OK"
