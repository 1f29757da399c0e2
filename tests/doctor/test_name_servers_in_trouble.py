"""Troubles of name servers, and of brokers that they do not know: made by real brokers, and found."""

import datetime
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench.ports import free_port
from firearrow._native.wire.codes import RequestCode
from firearrow.client.cli.doctor.facts import Certificate, Facts, NameServer
from firearrow.client.cli.doctor.name_server_checks import is_similar
from tests.doctor.running import QUICK, Said, doctor, doctor_of, found_in, severities
from tests.support.broker_process import WAYS, BrokerProcess
from tests.support.certificates import CertificateFiles
from tests.support.eventually import eventually
from tests.support.requests import topic_ext

DAY_MS = 86_400_000
NOTHING_LISTENS = "127.0.0.1:1"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Broker `home` with the name server of all others."""
    with BrokerProcess(tmp_path_factory.mktemp("home") / "store", "--set", "brokerName=home") as running:
        yield running


@contextmanager
def joined(home: BrokerProcess, store: Path, name: str, *arguments: str) -> Iterator[BrokerProcess]:
    """Another broker; afterwards it has unregistered, and is not expected."""
    here = "--namesrv", home.running.name_server, "--set", f"brokerName={name}"
    listens = () if "--namesrv-listen" in arguments else ("--namesrv-listen", "off")
    with BrokerProcess(store, *here, *listens, *arguments) as running, home.connect_name_server() as names:
        eventually(lambda: f'"{name}"'.encode() in names.ask(RequestCode.GET_BROKER_CLUSTER_INFO).body)
        yield running
        running.stop()


def absent(said: Said) -> list[str]:
    return [each["subject"] for each in said.of("absent-brokers")]


# ---- name servers ----


def test_two_brokers_and_their_two_name_servers_are_in_order(home: BrokerProcess, tmp_path: Path) -> None:
    """By two names of loopback, too."""
    port = free_port()
    both = f"{home.running.name_server};127.0.0.1:{port}"
    here = "--namesrv-listen", f"127.0.0.1:{port}"
    with joined(home, tmp_path / "a", "a", *here):
        name = home.running.name_server.replace("127.0.0.1", "localhost")
        assert doctor("-n", name, *QUICK).findings == []
        said = doctor("-n", both, *QUICK)
    assert [each["check"] for each in said.findings] == ["name-servers-differ"], (
        "home registers with one only"
    )
    assert "it does not know broker home" in said.findings[0]["found"]


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (NOTHING_LISTENS, "nothing listens there"),
        ("no-such-host.invalid:9876", "host name is not known here"),
    ],
)
def test_one_of_two_name_servers_is_dead(home: BrokerProcess, other: str, words: str) -> None:
    """All else is looked at; that the addresses are those of loopback is no trouble of brokers that listen there."""
    for servers in (f"{home.running.name_server};{other}", f"{other};{home.running.name_server}"):
        said = doctor("-n", servers, *QUICK)
        (finding,) = said.findings
        assert (finding["check"], finding["severity"]) == ("name-servers", "WARNING")
        assert finding["subject"] == f"name server {other}"
        assert words in finding["found"]
        assert said.code == 1


def test_a_broker_in_the_place_of_a_name_server(home: BrokerProcess, tmp_path: Path) -> None:
    with joined(home, tmp_path / "a", "a") as broker:
        (finding,) = doctor("-n", f"{home.running.name_server};{broker.running.address}", *QUICK).findings
    assert finding["check"] == "name-servers"
    assert "it is a broker without a name server" in finding["found"]


def test_a_context_names_a_name_server_that_is_dead(home: BrokerProcess, tmp_path: Path) -> None:
    (tmp_path / "firearrow").mkdir()
    contexts = {
        "ours": {"namesrv": f"{home.running.name_server};{NOTHING_LISTENS}"},
        "theirs": {"namesrv": "127.0.0.1:2"},
    }
    (tmp_path / "firearrow" / "contexts.json").write_text(json.dumps({"current": "", "contexts": contexts}))
    (finding,) = doctor("-n", home.running.name_server, *QUICK, state=tmp_path).findings
    assert finding["subject"] == f"name server {NOTHING_LISTENS}"
    assert "context ours has it" in finding["found"]


def test_a_broker_that_cannot_register_with_one_of_its_name_servers(
    home: BrokerProcess, tmp_path: Path
) -> None:
    servers = "--namesrv", f"{home.running.name_server};{NOTHING_LISTENS}"
    with joined(home, tmp_path / "a", "a", *servers):
        (finding,) = eventually(lambda: doctor_of(home).findings)
    assert (finding["check"], finding["subject"]) == ("registrations", "broker a")
    assert f"name server {NOTHING_LISTENS}, which is in its namesrvAddr, does not have it" in finding["found"]


def test_a_broker_that_only_another_name_server_knows(home: BrokerProcess, tmp_path: Path) -> None:
    """It is found through the namesrvAddr of a broker that both know."""
    port = free_port()
    other = f"127.0.0.1:{port}"
    with (
        joined(home, tmp_path / "far", "far", "--namesrv-listen", other) as far,
        BrokerProcess(
            tmp_path / "hidden",
            *("--namesrv", far.running.name_server, "--namesrv-listen", "off", "--set", "brokerName=hidden"),
        ),
        joined(home, tmp_path / "near", "near", "--namesrv", f"{home.running.name_server};{other}"),
    ):
        (finding,) = eventually(lambda: doctor_of(home).of("name-servers-differ"))
    assert "knows broker hidden" in finding["found"]


# ---- brokers that are absent ----


def test_a_broker_that_died_is_missed_until_it_is_back(home: BrokerProcess, tmp_path: Path) -> None:
    """Its name server forgot it as soon as its connection ended, and no doctor had run before."""
    with joined(home, tmp_path / "dies", "dies") as broker:
        assert doctor_of(home).findings == []
        broker.kill()
        said = eventually(lambda: doctor_of(home) if absent(doctor_of(home)) else None)
        (finding,) = said.findings
        assert finding["severity"] == "CRITICAL"
        assert (finding["check"], finding["subject"]) == ("absent-brokers", "broker dies")
        assert f"at {broker.running.address}" in finding["found"]
        broker.running.start()
        assert eventually(lambda: not absent(doctor_of(home)))


def test_a_broker_that_was_taken_away_is_forgotten(home: BrokerProcess, tmp_path: Path) -> None:
    with joined(home, tmp_path / "old", "old") as broker:
        broker.kill()
        assert eventually(lambda: absent(doctor_of(home))) == ["broker old"]
    assert doctor("-n", home.running.name_server, "--forget", "old").code == 0
    assert absent(doctor_of(home)) == []
    assert doctor("-n", home.running.name_server, "--forget", "old").code == 1, "no entry is left"


def test_a_broker_that_the_doctor_saw_before(home: BrokerProcess, tmp_path: Path) -> None:
    """It unregistered, or its name server does not remember, as Apache's."""
    state = tmp_path / "state"
    here = "-n", home.running.name_server
    with joined(home, tmp_path / "seen", "seen"):
        assert doctor(*here, *QUICK, state=state).findings == []
    (finding,) = doctor(*here, *QUICK, state=state).findings
    assert (finding["check"], finding["severity"]) == ("absent-brokers", "WARNING")
    assert "a doctor saw it here last" in finding["found"]
    assert doctor(*here, "--forget", "seen", state=state).code == 0
    assert doctor(*here, *QUICK, state=state).findings == []
    assert (state / "firearrow" / "brokers.json").stat().st_mode & 0o777 == 0o600


def test_a_broker_that_was_renamed_is_not_missed(home: BrokerProcess, tmp_path: Path) -> None:
    """It has its address still; nor is a slave that was promoted."""
    state, here = tmp_path / "state", ("-n", home.running.name_server)
    listen = "--listen", f"127.0.0.1:{free_port()}"
    with joined(home, tmp_path / "before", "before", *listen):
        assert doctor(*here, *QUICK, state=state).findings == []
    with joined(home, tmp_path / "after", "after", *listen):
        assert doctor(*here, *QUICK, state=state).findings == []


def test_a_broker_that_an_order_configuration_names(home: BrokerProcess) -> None:
    key = {"namespace": "ORDER_TOPIC_CONFIG", "key": "Ordered"}
    with home.connect_name_server() as names:
        ext = {**key, "value": "home:4;lost:4"}
        assert names.ask(RequestCode.PUT_KV_CONFIG, ext).code == 0
        (finding,) = doctor_of(home).findings
        assert names.ask(RequestCode.DELETE_KV_CONFIG, key).code == 0
    assert finding["subject"] == "broker lost"
    assert "the order configuration of topic Ordered names it" in finding["found"]


# ---- names of brokers and clusters ----


def test_two_masters_of_one_name(home: BrokerProcess, tmp_path: Path) -> None:
    with joined(home, tmp_path / "one", "twin") as one, joined(home, tmp_path / "two", "twin") as two:
        said = eventually(lambda: doctor_of(home) if doctor_of(home).of("two-masters") else None)
        (finding,) = said.findings
    assert finding["severity"] == "CRITICAL"
    assert finding["subject"] == "broker twin"
    assert one.running.address in finding["found"]
    assert two.running.address in finding["found"]


def test_two_masters_of_one_name_and_address(home: BrokerProcess, tmp_path: Path) -> None:
    """Both advertise one address; each change of topics registers."""
    with joined(home, tmp_path / "one", "same", "--set", "brokerIP1=localhost") as one:
        address = ("--advertise", f"localhost:{one.address[1]}")
        with joined(home, tmp_path / "two", "same", *address) as two:
            for number, broker in enumerate((one, two, one, two)):
                with broker.connect() as client:
                    ext = topic_ext(f"Same{number}")
                    assert client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, ext).code == 0
            found = eventually(lambda: doctor_of(home).of("two-masters"))
    assert f"both at localhost:{one.address[1]}" in found[0]["found"]


def test_a_master_with_the_name_of_the_name_servers_own_broker(home: BrokerProcess, tmp_path: Path) -> None:
    with joined(home, tmp_path / "twin", "home") as twin:
        said = eventually(lambda: doctor_of(home) if doctor_of(home).findings else None)
    (finding,) = said.findings
    assert finding["check"] == "two-masters"
    assert twin.running.address in finding["found"]


def test_a_slave_of_another_cluster_is_refused(home: BrokerProcess, tmp_path: Path) -> None:
    slave = "brokerRole=SLAVE", "brokerId=1", "brokerClusterName=Defaultcluster"
    with joined(home, tmp_path / "slave", "home", *(word for each in slave for word in ("--set", each))):
        found = eventually(lambda: doctor_of(home).of("refused-brokers"))
    assert "is registered with the cluster DefaultCluster" in found[0]["found"]
    assert "(brokerId 1)" in found[0]["subject"]


def test_a_misspelt_cluster(home: BrokerProcess, tmp_path: Path) -> None:
    with joined(home, tmp_path / "a", "a", "--set", "brokerClusterName=DefaultClutser"):
        (finding,) = doctor_of(home).findings
    assert finding["check"] == "cluster-names"
    assert finding["subject"] == "cluster DefaultCluster"
    assert "cluster DefaultClutser has 1 broker" in finding["found"]


@pytest.mark.parametrize(
    ("one", "two", "similar"),
    [
        ("DefaultCluster", "defaultcluster", True),
        ("DefaultCluster", "Default-Cluster", True),
        ("DefaultCluster", "DefaultClustr", True),
        ("DefaultCluster", "DefaultCllster", True),
        ("DefaultCluster", "DefaultClusterr", True),
        ("payments", "paymnets", True),
        ("cluster-1", "cluster-2", False),
        ("cluster1", "cluster12", False),
        ("clusterA", "clusterB", False),
        ("eu-west", "us-west", False),
        ("east", "west", False),
        ("dev", "dev2", False),
        ("test", "tests", False),
        ("orders", "ordersEU", False),
        ("DefaultCluster", "Other", False),
    ],
)
def test_names_that_hardly_differ(one: str, two: str, similar: bool) -> None:
    assert is_similar(one, two) == similar
    assert is_similar(two, one) == similar


# ---- certificates ----


def test_certificates_of_a_broker_that_speaks_tls(tmp_path: Path) -> None:
    """Of one that can be reached, by a plain client, too; and of one whose certificate stops every client."""
    files = CertificateFiles(tmp_path / "certificates")
    expiring(files, 20)
    with BrokerProcess(tmp_path / "store", *files.arguments, way=WAYS["engine"]) as broker:
        names = broker.running.name_server.replace("127.0.0.1", "localhost")
        context: dict[str, object] = {"namesrv": names, "tls": True, "authority": files.path("authority.pem")}
        with_contexts(tmp_path, context)
        assert [each["check"] for each in doctor("-n", names, *QUICK).findings] == ["certificates"]
        said = doctor(*QUICK, state=tmp_path)
        assert severities_of(said) == ["WARNING", "WARNING"], "of the name server, and of the broker"
        assert "ends in 19d" in said.findings[0]["found"]
        expiring(files, 20, "client")
        (context["certificate"], context["key"]) = (files.path("client.pem"), files.path("client.key"))
        with_contexts(tmp_path, context)
        (own,) = [
            each for each in doctor(*QUICK, state=tmp_path).findings if each["subject"] == "this client"
        ]
        assert own["found"].startswith(f"its certificate ({files.path('client.pem')}) ends in 19d")
        expiring(files, -1)
        said = eventually(lambda: _expired(doctor(*QUICK, state=tmp_path)))
        assert said.code == 1
        (finding,) = [each for each in said.of("certificates") if each["subject"] != "this client"]
        assert "has expired 1d" in finding["found"]
        assert "certificate has expired" in said.of("name-servers")[0]["found"]


def with_contexts(folder: Path, context: dict[str, object]) -> None:
    (folder / "firearrow").mkdir(exist_ok=True)
    text = json.dumps({"current": "tls", "contexts": {"tls": context}})
    (folder / "firearrow" / "contexts.json").write_text(text)


def expiring(files: CertificateFiles, days: int, name: str = "server") -> None:
    now = datetime.datetime.now(datetime.UTC)
    day = datetime.timedelta(days=1)
    files.issue(name, not_before=now - 10 * day, not_after=now + days * day)


def _expired(said: Said) -> Said | None:
    return said if said.of("name-servers") else None


def severities_of(said: Said) -> list[str]:
    return [each["severity"] for each in said.findings]


@pytest.mark.parametrize(
    ("begins_days", "ends_days", "found"),
    [
        (-1, 31, []),
        (-1, 29, ["WARNING"]),
        (-1, 2, ["CRITICAL"]),
        (-9, -1, ["CRITICAL"]),
        (1, 90, ["CRITICAL"]),
    ],
)
def test_dates_of_certificates(begins_days: int, ends_days: int, found: list[str]) -> None:
    now_ms = 1_000_000_000_000
    dates = now_ms + begins_days * DAY_MS, now_ms + ends_days * DAY_MS
    facts = Facts(now_ms, certificates=[Certificate("broker b", "/server.pem", *dates)])
    assert severities(found_in(facts, "certificates")) == found


def test_one_broker_at_two_addresses() -> None:
    """Name servers that disagree; with one port it may be one machine with two names."""
    one = NameServer("10.0.0.1:9876", brokers={"b": {0: "10.0.0.3:10911"}})
    two = NameServer("10.0.0.2:9876", brokers={"b": {0: "10.0.0.4:10911"}})
    assert not found_in(Facts(1, name_servers=[one, two]), "name-servers-differ")
    two.brokers = {"b": {0: "10.0.0.3:20911"}}
    (finding,) = found_in(Facts(1, name_servers=[one, two]), "name-servers-differ")
    assert "10.0.0.3:10911 at 10.0.0.1:9876, and 10.0.0.3:20911" in finding.text
