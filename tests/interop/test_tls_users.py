"""TLS and users together: Java's client 5 with its keys, through TLS, at a broker and at a name server alone."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from firearrow._native.wire.codes import RequestCode
from tests.auth.secured import ROOT, ROOT_PASSWORD, SignedSocket, ask_ok, create_user, grant
from tests.auth.test_name_server import name_server
from tests.auth.test_outgoing import INNER
from tests.interop.driver import Driver, Event, Failed
from tests.interop.messages import hexed
from tests.interop.peers import Apache, FireArrow, Peer, address
from tests.interop.test_access import SETTINGS
from tests.interop.toolchain import java_class_path, need
from tests.support.broker_process import BrokerProcess
from tests.support.certificates import CertificateFiles
from tests.support.requests import topic_ext

pytestmark = pytest.mark.interop

KEYS_OF_ROOT = {"accessKey": ROOT, "secretKey": ROOT_PASSWORD}
KEYS_OF_APP = {"accessKey": "app", "secretKey": "app-secret"}
GROUPS = ("pulling", "popping")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    return CertificateFiles(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def client(files: CertificateFiles, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """Java's client 5; it checks the server's certificate, and its operations name their server and their user."""
    need(lambda: java_class_path("client5"))
    trust = {"tls.client.authServer": "true", "tls.client.trustCertPath": files.path("authority.pem")}
    with Driver("java5", "127.0.0.1:1", tmp_path_factory.mktemp("java5")) as driver:
        driver.ask("tls", **trust, **{"tls.enable": "true"})
        yield driver


@pytest.fixture(scope="module")
def guarded(
    request: pytest.FixtureRequest, files: CertificateFiles, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Peer]:
    """A broker with TLS that checks users and rules: ours, or with `--against apache` Apache's.

    Ours takes nothing but TLS; Apache's takes plain requests, too, as it registers with its name server by one.
    """
    settings = SETTINGS | {
        "brokerName": "broker-a",
        "timerWheelEnable": "true",  # without its timer, which `Apache` turns off, a broker refuses to pop
        "tls.test.mode.enable": "false",
        "tls.server.certPath": files.path("server.pem"),
        "tls.server.keyPath": files.path("server.key"),
    }
    store = tmp_path_factory.mktemp("guarded") / "store"
    if request.config.getoption("--against", "firearrow") == "apache":
        with Apache(store, settings) as apache:
            yield apache
    else:
        with FireArrow(store, settings | {"tls.server.mode": "enforcing"}) as ours:
            yield ours


def administer(client: Driver, name_server: str, line: str, keys: dict[str, str] = KEYS_OF_ROOT) -> str:
    [output] = client.ask("mqadmin", argument=line.split(), nameServer=name_server, **keys)
    return str(output["text"])


def allow(root: SignedSocket, topic: str) -> None:
    """The user `app` may send to this topic, and consume it in both groups."""
    grant(root, "app", f"Topic:{topic}", "Pub", "Sub", "Get")
    for group in GROUPS:
        grant(root, "app", f"Group:{group}", "Sub", "Get")


def refused(client: Driver, topic: str, **more: str) -> Failed:
    with pytest.raises(Failed) as failed:
        client.ask("send", group=f"Refused-{topic}", topic=topic, body=hexed("x"), **more)
    client.ask("rest")
    return failed.value


def test_users_over_tls(guarded: Peer, client: Driver, files: CertificateFiles) -> None:
    """A producer, a push consumer that pulls, one that pops, and mqadmin; then a rule refuses, and a wrong key."""
    with SignedSocket(address(guarded.address), tls=files.client()) as root:
        ask_ok(root, RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext("Secure"))
        ask_ok(root, RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext("Closed"))
        for group in GROUPS:
            ask_ok(root, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, {"groupName": group})
        create_user(root, "app", "app-secret")
        allow(root, "Secure")
        grant(root, "app", "Topic:Closed", "Pub", decision="Deny")
    names, bodies = guarded.name_server, hexed("one", "two", "three")
    at = KEYS_OF_APP | {"nameServer": names}
    text = administer(client, names, "setConsumeMode -c DefaultCluster -t Secure -g popping -m POP -q 0")
    assert "success" in text, text
    client.ask("send", group="P", topic="Secure", body=bodies, **at)
    client.ask("consume", name="puller", group="pulling", topic="Secure", **at)
    client.ask("consume", name="popper", group="popping", topic="Secure", pop="yes", **at)
    popped: list[Event] = client.await_bodies(["popper"], bodies)
    assert all("POP_CK" in event["properties"] for event in popped)
    client.await_bodies(["puller"], bodies)
    for name in ("puller", "popper"):
        client.ask("stop", name=name)
    client.ask("rest")
    assert refused(client, "Closed", **at).code == 16
    assert refused(client, "Secure", **at | {"secretKey": "wrong"}).type.startswith("MQ")
    assert "app" in administer(client, names, f"listUser -b {guarded.address}")
    text = administer(client, names, f"listUser -b {guarded.address}", KEYS_OF_APP)
    assert "has no permission to access" in text, text


def test_a_name_server_alone(client: Driver, files: CertificateFiles, tmp_path: Path) -> None:
    """It speaks TLS and checks users; the broker registers with its keys, and checks users itself."""
    own = {"tls.server.certPath": files.path("server.pem"), "tls.server.keyPath": files.path("server.key")}
    more = "".join(f"{key}={text}\n" for key, text in (own | {"tls.server.mode": "enforcing"}).items())
    pairs = [
        *(f"{key}={text}" for key, text in (SETTINGS | own).items() if not key.startswith("inner")),
        *("tls.enable=true", "tls.client.authServer=true", "autoCreateTopicEnable=false"),
        INNER % ROOT_PASSWORD,
        f"tls.client.trustCertPath={files.path('authority.pem')}",
    ]
    words = [word for pair in pairs for word in ("--set", pair)]
    with name_server(tmp_path, more=more) as names:
        at = "{}:{}".format(*names)
        words += ["--namesrv", at, "--namesrv-listen", "off"]
        with BrokerProcess(tmp_path / "store", *words) as broker:
            check_a_name_server_alone(client, files, names, broker.address)


def check_a_name_server_alone(
    client: Driver, files: CertificateFiles, names: tuple[str, int], broker: tuple[str, int]
) -> None:
    at, bodies = "{}:{}".format(*names), hexed("one", "two")
    tls = files.client()
    with SignedSocket(names, tls=tls) as root_of_names, SignedSocket(broker, tls=tls) as root:
        for topic in ("Routed", "Hidden"):
            ask_ok(root, RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(topic))
        ask_ok(root, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, {"groupName": "pulling"})
        for each in (root_of_names, root):
            create_user(each, "app", "app-secret")
            allow(each, "Routed")
        grant(root, "app", "Topic:Hidden", "Pub")  # the name server does not show the way to it
        assert "{}:{}".format(*broker) in administer(client, at, "clusterList")
        of_app = KEYS_OF_APP | {"nameServer": at}
        client.ask("send", group="R", topic="Routed", body=bodies, **of_app)
        client.ask("consume", name="routed", group="pulling", topic="Routed", **of_app)
        client.await_bodies(["routed"], bodies)
        client.ask("stop", name="routed")
        client.ask("rest")
        for topic, keys in (
            ("Hidden", {}),
            ("Routed", {"secretKey": "wrong"}),
            ("Routed", {"accessKey": "nobody"}),
        ):
            failed = refused(client, topic, **of_app | keys)
            assert failed.type == "MQClientException", failed
        text = administer(client, at, "clusterList", KEYS_OF_APP)
        assert "has no permission to access" in text, text
