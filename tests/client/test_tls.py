"""The client over TLS: own authority, client certificate, server name, reload, and what its errors say."""

import asyncio
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.client import (
    ClientOptions,
    ConfigError,
    ConsumeFromWhere,
    ConsumeResult,
    Message,
    Producer,
    PushConsumer,
    PushConsumerOptions,
    TlsOptions,
)
from firearrow.client.base.errors import ConnectFailed, TransportError
from firearrow.client.remoting.channels import Channels
from tests.support.broker_process import BrokerProcess
from tests.support.certificates import CertificateFiles, settings


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    return CertificateFiles(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, files: CertificateFiles) -> Iterator[BrokerProcess]:
    """Accepts TLS only, and wants client certificates."""
    arguments = (
        *files.arguments,
        *settings(server_mode="enforcing", server_need_client_auth="require", server_authClient="true"),
        *settings(server_trustCertPath=files.path("authority.pem")),
    )
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "store", *arguments) as running:
        yield running
        assert running.stop() == 0
        assert "Traceback" not in running.log.read_text()


def options_of(broker: BrokerProcess, tls: TlsOptions | ssl.SSLContext | bool) -> ClientOptions:
    assert broker.name_server is not None
    return ClientOptions(name_server="{}:{}".format(*broker.name_server), tls=tls)


def own(files: CertificateFiles, name: str = "client", **further: str) -> TlsOptions:
    return TlsOptions(
        authority=files.path("authority.pem"),
        certificate=files.path(f"{name}.pem"),
        key=files.path(f"{name}.key"),
        **further,
    )


async def test_a_message_there_and_back(broker: BrokerProcess, files: CertificateFiles) -> None:
    client = options_of(broker, own(files))
    async with Producer("tls-producer", client=client) as producer:
        await producer.send(Message("tls", b"secret" * 20_000))
    found: list[bytes] = []
    consumer = PushConsumer(
        "tls-consumer",
        client=client,
        options=PushConsumerOptions(from_where=ConsumeFromWhere.FIRST_OFFSET),
    )

    @consumer.subscribe("tls")
    async def handle(messages: object) -> ConsumeResult:
        found.extend(message.body for message in messages)  # type: ignore[attr-defined]
        consumer.stop()
        return ConsumeResult.SUCCESS

    async with asyncio.timeout(20):
        await consumer.run()
    assert found == [b"secret" * 20_000]


async def fault(broker: BrokerProcess, tls: TlsOptions | ssl.SSLContext | bool) -> str:
    """What opening a channel and a first request say; empty: both worked."""
    channels = Channels(asyncio.get_running_loop(), options_of(broker, tls), lambda *_: None, lambda *_: None)
    request = RemotingCommand.request(RequestCode.GET_BROKER_RUNTIME_INFO, {})
    try:
        answer = await channels.call("{}:{}".format(*broker.address), request, 5)
    except TransportError as error:
        return str(error)
    finally:
        await channels.close()
    assert answer.code == 0
    return ""


async def test_whom_the_client_trusts(broker: BrokerProcess, files: CertificateFiles) -> None:
    assert await fault(broker, own(files)) == ""
    assert await fault(broker, files.client("client")) == ""
    assert "TlsOptions.authority" in await fault(broker, True)
    assert "TlsOptions.authority" in await fault(broker, TlsOptions(authority=files.path("stranger.pem")))
    unchecked = TlsOptions(verify=False, certificate=files.path("client.pem"), key=files.path("client.key"))
    assert await fault(broker, unchecked) == ""


async def test_whom_the_server_trusts(broker: BrokerProcess, files: CertificateFiles) -> None:
    """With TLS 1.3 the refusal comes after the client's handshake, with its first request."""
    assert "set ClientOptions.tls" in await fault(broker, False)
    authority = TlsOptions(authority=files.path("authority.pem"))
    assert "set TlsOptions.certificate" in await fault(broker, authority)
    older = files.client(version=ssl.TLSVersion.TLSv1_2)
    assert "set TlsOptions.certificate" in await fault(broker, older)
    assert "does not trust the authority of TlsOptions.certificate" in await fault(
        broker, own(files, "stranger")
    )
    now = datetime.now(UTC)
    files.issue("expired", not_before=now - timedelta(days=2), not_after=now - timedelta(days=1))
    assert "TlsOptions.certificate has expired" in await fault(broker, own(files, "expired"))
    files.issue("early", not_before=now + timedelta(days=1), not_after=now + timedelta(days=2))
    assert "look at its dates" in await fault(broker, own(files, "early"))


@pytest.mark.parametrize(("from_days", "to_days", "advice"), [(-2, -1, "renew it"), (1, 2, "the clocks")])
async def test_a_server_s_certificate_out_of_its_time(
    tmp_path: Path, from_days: int, to_days: int, advice: str
) -> None:
    files, now = CertificateFiles(tmp_path / "files"), datetime.now(UTC)
    files.issue("server", not_before=now + timedelta(days=from_days), not_after=now + timedelta(days=to_days))
    with BrokerProcess(tmp_path / "store", *files.arguments) as running:
        said = await fault(running, TlsOptions(authority=files.path("authority.pem")))
    assert advice in said
    assert "TlsOptions.authority" not in said


async def test_a_key_with_a_password(broker: BrokerProcess, files: CertificateFiles) -> None:
    key = {"certificate": files.path("client.pem"), "key": files.lock("client", "a word")}
    authority = files.path("authority.pem")
    assert await fault(broker, TlsOptions(authority=authority, key_password="a word", **key)) == ""
    for wrong in ("another", None):
        with pytest.raises(ConfigError, match="the key's password is wrong"):
            await fault(broker, TlsOptions(authority=authority, key_password=wrong, **key))


async def test_the_server_s_name(broker: BrokerProcess, files: CertificateFiles) -> None:
    assert await fault(broker, own(files, server_name="localhost")) == ""
    for wrong in ("elsewhere.example", "10.9.8.7"):
        said = await fault(broker, own(files, server_name=wrong))
        assert wrong in said
        assert "TlsOptions.server_name" in said
        assert "TlsOptions.authority" not in said


async def test_a_server_without_tls(tmp_path: Path, files: CertificateFiles) -> None:
    with BrokerProcess(tmp_path / "store") as plain:
        assert "does not speak TLS" in await fault(plain, own(files))


async def test_files_are_read_again(tmp_path: Path) -> None:
    """A client that trusts another authority from now on, and one whose new file is broken."""
    files, other = CertificateFiles(tmp_path / "one"), CertificateFiles(tmp_path / "two")
    with BrokerProcess(tmp_path / "store", *files.arguments) as running:
        authority = tmp_path / "authority.pem"
        authority.write_bytes(other.authority.cert_pem.bytes())
        channels = Channels(
            asyncio.get_running_loop(),
            options_of(running, TlsOptions(authority=str(authority))),
            lambda *_: None,
            lambda *_: None,
        )
        address = "{}:{}".format(*running.address)
        with pytest.raises(ConnectFailed):
            await channels.open(address, 5)
        authority.write_bytes(files.authority.cert_pem.bytes())
        channel = await channels.open(address, 5)
        authority.write_text("no certificate")
        channels.drop(channel)
        assert await channels.open(address, 5) is not channel
        await channels.close()


@pytest.mark.parametrize(
    ("pairs", "named"),
    [
        ({"authority": "/missing"}, "TlsOptions.authority=/missing: No such file"),
        ({"certificate": "{server.pem}", "key": "{client.key}"}, "key values mismatch"),
        ({"certificate": "/missing"}, "TlsOptions.certificate=/missing"),
        ({"authority": "{server.key}"}, "TlsOptions.authority"),
    ],
)
async def test_files_that_cannot_be_used(
    broker: BrokerProcess, files: CertificateFiles, pairs: dict[str, str], named: str
) -> None:
    tls = TlsOptions(
        **{key: files.path(text.strip("{}")) if "{" in text else text for key, text in pairs.items()}
    )
    with pytest.raises(ConfigError, match=named):
        await fault(broker, tls)


def test_a_key_needs_its_certificate() -> None:
    with pytest.raises(ConfigError):
        TlsOptions(key="/some.key")
