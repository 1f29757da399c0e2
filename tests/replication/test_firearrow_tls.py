"""TLS at some brokers of a pair only: a slave follows where it can, and else reports why and what to do."""

from pathlib import Path

from bench.ports import free_port
from tests.replication.pairs import SECRET, SIZES, fill, ha_client, name_server, own_ports, words
from tests.replication.promoted_pair import is_master, promoted
from tests.support.broker_process import BrokerProcess
from tests.support.certificates import CertificateFiles
from tests.support.eventually import eventually
from tests.support.requests import send

ROLE = {"brokerRole": "SLAVE", "brokerId": "1", "haSecret": SECRET}


def reports(slave: BrokerProcess, state: str, reason: str) -> None:
    with slave.connect() as client:
        eventually(lambda: ha_client(client)["state"] == state, 10, f"the state {state}")
        eventually(lambda: reason in str(ha_client(client)["reason"]), 10, reason)


def test_tls_at_the_slave_alone_or_with_its_master(tmp_path: Path) -> None:
    """The name server is plain: without its word the slave follows the master at haMasterAddress."""
    files, port = CertificateFiles(tmp_path / "certificates"), free_port()
    client = {"tls.enable": "true", "tls.client.authServer": "true"}
    client["tls.client.trustCertPath"] = files.path("authority.pem")
    with (
        BrokerProcess(tmp_path / "names", *words({"brokerName": "names"})) as names,
        BrokerProcess(
            tmp_path / "master",
            *(*own_ports()[:2], *files.arguments, "--namesrv", name_server(names)),
            *words(SIZES | {"haSecret": SECRET, "haListenPort": str(port), "brokerRole": "SYNC_MASTER"}),
        ) as master,
    ):
        ways = ("--namesrv", name_server(names), *words(SIZES | ROLE | client))
        with BrokerProcess(tmp_path / "slave", *own_ports()[:2], *ways) as slave:
            reports(slave, "no master", "took no TLS")
            reports(slave, "no master", f"the name server {name_server(names)} does not have this broker")
            reports(slave, "no master", "tls.enable=false here")
        with master.connect() as sender:
            fill(sender, 20)
        there = words({"haMasterAddress": f"127.0.0.1:{port}", "haListenPort": str(free_port())})
        with BrokerProcess(tmp_path / "slave", *own_ports()[:2], *ways, *there) as slave:
            reports(slave, "following", "")
            assert promoted(slave).code == 0  # it knows its master, which is fenced
            with slave.connect() as promoted_one:
                eventually(lambda: is_master(promoted_one), what="the promotion")
            with master.connect() as sender:
                eventually(
                    lambda: send(sender, "Followed", b"no").code == 14, what="that the old master is fenced"
                )


def test_plain_slaves_of_brokers_that_take_only_tls(tmp_path: Path) -> None:
    files, port = CertificateFiles(tmp_path / "certificates"), free_port()
    only_tls = (*files.arguments, *words({"tls.server.mode": "enforcing"}))
    with BrokerProcess(tmp_path / "names", *only_tls, *words({"brokerName": "names"})) as names:
        ways = ("--namesrv", name_server(names), *words(SIZES | ROLE))
        with BrokerProcess(tmp_path / "slave", *own_ports()[:2], *ways) as slave:
            reports(slave, "no master", "if it takes only TLS, set tls.enable=true here")
    with (
        BrokerProcess(tmp_path / "plain", *words({"brokerName": "names"})) as names,
        BrokerProcess(
            tmp_path / "master",
            *(*only_tls, "--namesrv", name_server(names)),
            *words(SIZES | {"haSecret": SECRET, "haListenPort": str(port)}),
        ),
        BrokerProcess(
            tmp_path / "slave", *own_ports()[:2], "--namesrv", name_server(names), *words(SIZES | ROLE)
        ) as slave,
    ):
        reports(slave, "failed", "if it takes only TLS, set tls.enable=true here")
