"""Floods of TLS records that carry no data: each may cost a reply and key derivations, and none is a request."""

import ssl
import time
from collections.abc import Callable, Iterator

import pytest

from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from tests.integration.latency_probe import LatencyProbe
from tests.support.broker_process import WAYS, BrokerProcess
from tests.support.certificates import CertificateFiles
from tests.support.frames import split_frames
from tests.support.tls_records import ALERT, DATA, HANDSHAKE, HELLO, TICKET, WARNING, RecordClient

TLS_1_2, TLS_1_3 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
RECORDS = 9_700
"""As many key updates as 256 KiB hold."""
EMPTY_RECORDS_MAX = 32
GROWTH_KIB = 2048
TOO_MANY = "more than 32 records without data, such as key updates, in 1 s"

FLOODS: dict[str, tuple[ssl.TLSVersion, Callable[[RecordClient], bytes], str]] = {
    "key updates": (TLS_1_3, lambda client: client.key_update(), TOO_MANY),
    "renegotiation": (TLS_1_2, lambda client: client.record(HANDSHAKE, HELLO), TOO_MANY),
    "empty records": (TLS_1_3, lambda client: client.record(DATA, b""), "record too small|" + TOO_MANY),
    "empty records of 1.2": (
        TLS_1_2,
        lambda client: client.record(DATA, b""),
        "record too small|" + TOO_MANY,
    ),
    "warnings": (TLS_1_3, lambda client: client.record(ALERT, WARNING), "too many warn alerts"),
    "warnings of 1.2": (TLS_1_2, lambda client: client.record(ALERT, WARNING), "too many warn alerts"),
    "tickets": (TLS_1_3, lambda client: client.record(HANDSHAKE, TICKET), "unexpected message"),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    return CertificateFiles(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, files: CertificateFiles) -> Iterator[BrokerProcess]:
    store = tmp_path_factory.mktemp("records") / "store"
    with BrokerProcess(store, *files.arguments, way=WAYS["engine"]) as running:
        yield running
        assert running.stop() == 0
        assert "Traceback" not in running.log.read_text()


@pytest.mark.parametrize("kind", FLOODS)
def test_a_flood_ends_the_connection(broker: BrokerProcess, files: CertificateFiles, kind: str) -> None:
    """With one line in the log; it delays no other client, and its replies take no memory."""
    version, make, reason = FLOODS[kind]
    logged = len(broker.log.read_text())
    with RecordClient(files.client(version=version), broker.address) as client:
        flood = b"".join(make(client) for _ in range(RECORDS))
        with LatencyProbe(broker) as probe:
            before = broker.anonymous_kib()
            try:
                client.socket.sendall(flood)
            except ConnectionError:
                pass
            assert client.closed_by_peer()
            assert broker.anonymous_kib() - before < GROWTH_KIB
        assert probe.worst_s < 0.5
    deadline = time.monotonic() + 5
    while not (lines := broker.log.read_text()[logged:].splitlines()):  # it is logged after the close
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert len(lines) == 1, lines
    assert any(each in lines[0] for each in reason.split("|"))


def test_data_between_the_records_does_not_hide_them(broker: BrokerProcess, files: CertificateFiles) -> None:
    with RecordClient(files.client(), broker.address) as client:
        request = RemotingCommand(RequestCode.GET_BROKER_RUNTIME_INFO, {}, b"").encode()
        records = (client.record(DATA, b"") + client.record(DATA, request[at : at + 1]) for at in range(40))
        client.socket.sendall(b"".join(records))
        assert client.closed_by_peer()


def test_as_many_as_the_limit_in_each_second_are_served(
    broker: BrokerProcess, files: CertificateFiles
) -> None:
    with RecordClient(files.client(), broker.address) as client:
        for _ in range(2):
            client.socket.sendall(rekeyed_request(client, EMPTY_RECORDS_MAX))
            answer = b""
            while not split_frames(answer)[0]:
                got = client.receive()
                assert got, "closed by the broker"
                answer += got
            time.sleep(1.1)
        client.socket.sendall(rekeyed_request(client, EMPTY_RECORDS_MAX + 1))
        assert client.closed_by_peer()


def rekeyed_request(client: RecordClient, updates: int) -> bytes:
    """So many key updates, and a request with the last keys."""
    before = b"".join(client.key_update() for _ in range(updates))
    return before + client.record(DATA, RemotingCommand(RequestCode.GET_NAMESRV_CONFIG, {}, b"").encode())
