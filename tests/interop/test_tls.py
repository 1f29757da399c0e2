"""The scenarios of Apache's TlsTest with Java's clients, on our broker and on Apache's.

Java's clients read their TLS options from system properties, so each scenario has a JVM of its own.
"""

from pathlib import Path
from typing import NamedTuple

import pytest

from firearrow.client import ClientOptions, Message, TlsOptions
from firearrow.client.blocking import Producer
from tests.interop.driver import Driver, Failed
from tests.interop.peers import Apache, FireArrow
from tests.interop.toolchain import java_class_path, need
from tests.support.certificates import CertificateFiles

pytestmark = pytest.mark.interop

CHECKED = {"tls.server.need.client.auth": "require", "tls.server.authClient": "true"}


class Scenario(NamedTuple):
    """`own`: the client's certificate; `trusted`: whose servers it trusts, None: all."""

    name: str
    server: dict[str, str]
    works: bool
    tls: bool = True
    own: str | None = None
    trusted: str | None = None


SCENARIOS = (
    Scenario("both check each other", CHECKED, works=True, own="client", trusted="authority"),
    Scenario("the server rejects an untrusted client", CHECKED, works=False, own="stranger"),
    Scenario("the server rejects a client without certificate", CHECKED, works=False),
    Scenario("the client rejects an untrusted server", {}, works=False, trusted="stranger"),
    Scenario("the client accepts an untrusted server", {}, works=True),
    Scenario(
        "the server wants a certificate, the client has none",
        CHECKED | {"tls.server.need.client.auth": "optional"},
        works=True,
    ),
    Scenario(
        "an enforcing server rejects a plain client", {"tls.server.mode": "enforcing"}, False, tls=False
    ),
    Scenario(
        "a permissive server accepts a plain client", {"tls.server.mode": "permissive"}, True, tls=False
    ),
    Scenario("a server without TLS rejects a TLS client", {"tls.server.mode": "disabled"}, works=False),
)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    return CertificateFiles(tmp_path_factory.mktemp("certificates"))


def server_options(files: CertificateFiles, scenario: Scenario) -> dict[str, str]:
    return {
        "tls.test.mode.enable": "false",
        "tls.server.certPath": files.path("server.pem"),
        "tls.server.keyPath": files.path("server.key"),
        "tls.server.trustCertPath": files.path("authority.pem"),
    } | scenario.server


def client_options(files: CertificateFiles, scenario: Scenario) -> str:
    options = {"tls.enable": str(scenario.tls).lower(), "tls.test.mode.enable": "false"}
    if scenario.own is not None:
        options["tls.client.certPath"] = files.path(f"{scenario.own}.pem")
        options["tls.client.keyPath"] = files.path(f"{scenario.own}.key")
    if scenario.trusted is not None:
        options["tls.client.authServer"] = "true"
        options["tls.client.trustCertPath"] = files.path(f"{scenario.trusted}.pem")
    return " ".join(f"-D{key}={text}" for key, text in options.items())


class ApacheWithTls(Apache):
    def __init__(self, store: Path, options: dict[str, str]) -> None:
        self.options = tuple(f"-D{key}={text}" for key, text in options.items())
        super().__init__(store, {})


def check(
    peer: Apache | FireArrow,
    files: CertificateFiles,
    scenario: Scenario,
    program: str,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as changed:
        changed.setenv("JAVA_TOOL_OPTIONS", client_options(files, scenario))
        driver = Driver(program, peer.name_server, home)
    with driver:
        works = True
        try:
            driver.ask("send", group="TlsProducer", topic="TlsTopic", body=b"hidden".hex())
            if program == "java5":
                [output] = driver.ask("mqadmin", argument=["clusterList"])
                assert peer.address in str(output["text"])
        except Failed:
            works = False
        assert works == scenario.works


@pytest.fixture(params=SCENARIOS, ids=lambda scenario: scenario.name.replace(" ", "-"))
def scenario(request: pytest.FixtureRequest) -> Scenario:
    found: Scenario = request.param
    return found


def test_our_broker(
    tmp_path: Path, files: CertificateFiles, scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    need(lambda: java_class_path("client5"))
    with FireArrow(tmp_path / "store", server_options(files, scenario)) as peer:
        check(peer, files, scenario, "java5", tmp_path / "home", monkeypatch)
        peer.stop()


@pytest.mark.parametrize("scenario", SCENARIOS[:3], ids=lambda scenario: scenario.name.replace(" ", "-"))
def test_our_broker_with_the_old_client(
    tmp_path: Path, files: CertificateFiles, scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    need(lambda: java_class_path("client4"))
    with FireArrow(tmp_path / "store", server_options(files, scenario)) as peer:
        check(peer, files, scenario, "java4", tmp_path / "home", monkeypatch)
        peer.stop()


@pytest.mark.parametrize("scenario", SCENARIOS[:5], ids=lambda scenario: scenario.name.replace(" ", "-"))
def test_apaches_broker(
    tmp_path: Path, files: CertificateFiles, scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    need(lambda: java_class_path("client5"))
    with ApacheWithTls(tmp_path / "store", server_options(files, scenario)) as peer:
        check(peer, files, scenario, "java5", tmp_path / "home", monkeypatch)
        peer.stop()


def test_our_client_with_apaches_broker(tmp_path: Path, files: CertificateFiles) -> None:
    need(lambda: java_class_path("client5"))
    with ApacheWithTls(tmp_path / "store", server_options(files, SCENARIOS[0])) as peer:
        tls = TlsOptions(
            authority=files.path("authority.pem"),
            certificate=files.path("client.pem"),
            key=files.path("client.key"),
        )
        with Producer("tls", client=ClientOptions(name_server=peer.name_server, tls=tls)) as producer:
            assert producer.send(Message("OurTls", b"hidden" * 10_000)).status.name == "SEND_OK"
        peer.stop()
