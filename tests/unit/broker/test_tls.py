"""What the options of TLS mean: Apache's files and names, contexts, and what cannot take effect."""

import ssl
from pathlib import Path

import pytest

from firearrow.broker.base.tls import (
    KEYS,
    TlsFault,
    client_context,
    expiry,
    fault_of,
    server_context,
    settings_of,
)
from tests.support.certificates import CertificateFiles

SERVER = "tls.server."


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    return CertificateFiles(tmp_path_factory.mktemp("certificates"))


def pair(files: CertificateFiles, name: str = "server", prefix: str = SERVER) -> dict[str, str]:
    return {f"{prefix}certPath": files.path(f"{name}.pem"), f"{prefix}keyPath": files.path(f"{name}.key")}


CHECKED = {"tls.server.need.client.auth": "require", "tls.server.authClient": "true"}


def test_nothing_is_off() -> None:
    settings = settings_of({})
    assert (settings.mode, settings.listens, settings.outgoing, settings.watched()) == (
        "disabled",
        False,
        False,
        (),
    )
    assert settings_of(dict.fromkeys(KEYS, "")).mode == "disabled"


def test_required_certificates_of_clients_are_enforced(files: CertificateFiles) -> None:
    assert settings_of(pair(files) | CHECKED).mode == "enforcing"
    assert (
        settings_of(pair(files) | CHECKED | {"tls.server.need.client.auth": "optional"}).mode == "permissive"
    )
    assert fault_of(pair(files) | CHECKED | {"tls.server.mode": "disabled"}) is None
    assert fault_of(pair(files) | {"tls.ciphers": "HIGH,!aNULL,!PSK"}) is None


def test_a_certificate_alone_is_permissive(files: CertificateFiles) -> None:
    settings = settings_of(pair(files))
    assert (settings.mode, settings.made) == ("permissive", False)
    assert settings.watched() == (files.path("server.pem"), files.path("server.key"))
    assert server_context(settings).verify_mode is ssl.CERT_NONE


def test_test_mode_uses_a_certificate_that_is_named(files: CertificateFiles) -> None:
    assert not settings_of(pair(files) | {"tls.test.mode.enable": "true"}).made
    assert settings_of({"tls.test.mode.enable": "true"}).made


def test_apaches_file_takes_precedence(tmp_path: Path, files: CertificateFiles) -> None:
    """But the mode is no line of it."""
    file = tmp_path / "tls.properties"
    lines = pair(files) | {"tls.test.mode.enable": "false", "tls.server.mode": "disabled", "other": "x"}
    file.write_text("".join(f"{key}={text}\n" for key, text in lines.items()))
    settings = settings_of(
        {"tls.config.file": str(file), "tls.server.mode": "enforcing", "tls.server.certPath": "/other"}
    )
    assert (settings.mode, settings.server.certificate) == ("enforcing", files.path("server.pem"))
    assert str(file) in settings.watched()


@pytest.mark.parametrize(
    ("names", "found"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"),
        ("TLS_RSA_WITH_AES_256_GCM_SHA384", "AES256-GCM-SHA384"),
        ("ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
    ],
)
def test_names_of_cipher_suites(files: CertificateFiles, names: str, found: str) -> None:
    context = server_context(settings_of(pair(files) | {"tls.ciphers": names}))
    assert found in {cipher["name"] for cipher in context.get_ciphers()}
    assert context.maximum_version is ssl.TLSVersion.TLSv1_2


def test_suites_of_tls_1_3_alone(files: CertificateFiles) -> None:
    context = server_context(settings_of(pair(files) | {"tls.ciphers": "TLS_AES_128_GCM_SHA256"}))
    assert context.minimum_version is ssl.TLSVersion.TLSv1_3


@pytest.mark.parametrize(
    ("pairs", "fault"),
    [
        ({"tls.ciphers": "TLS_ECDHE_RSA_WITH_NOTHING"}, "no cipher suite that OpenSSL knows"),
        ({"tls.ciphers": "TLS_AES_128_GCM_SHA256", "tls.protocols": "TLSv1.2"}, "no cipher suite for"),
        ({"tls.ciphers": "NULL-SHA256"}, "leaves connections readable"),
        ({"tls.ciphers": "ECDHE-RSA-AES128-GCM-SHA256,NULL-SHA256"}, "asks for 'NULL-SHA256'"),
        ({"tls.ciphers": "TLS_RSA_WITH_NULL_SHA256"}, "leaves connections readable"),
        ({"tls.ciphers": "TLS_DH_anon_WITH_AES_128_GCM_SHA256"}, "leaves connections readable"),
        ({"tls.ciphers": "ECDHE-RSA-AES128-GCM-SHA256,SSL_RSA_EXPORT_WITH_RC4_40_MD5"}, "EXPORT"),
        ({"tls.ciphers": "TLS_AES_128_GCM_SHA256,eNULL"}, "asks for 'eNULL'"),
        ({"tls.ciphers": "ALL"}, "asks for 'ADH-"),
        ({"tls.ciphers": "HIGH,@SECLEVEL=0"}, "SECLEVEL"),
        ({"tls.server.need.client.auth": "require"}, "accepts any certificate unless"),
        (CHECKED | {"tls.server.mode": "permissive"}, "requires nothing while tls.server.mode=permissive"),
        ({"tls.protocols": "SSLv3"}, "only TLSv1.2 and TLSv1.3"),
        ({"tls.server.need.client.auth": "maybe"}, "none, optional or require"),
        ({"tls.server.authClient": "yes"}, "true or false"),
    ],
)
def test_values_that_are_refused(files: CertificateFiles, pairs: dict[str, str], fault: str) -> None:
    assert fault in str(fault_of(pair(files) | pairs))


def test_an_encrypted_key(files: CertificateFiles) -> None:
    pairs = pair(files) | {"tls.server.keyPath": files.lock("server", "open sesame")}
    assert "keyPassword is not the key's password" in str(fault_of(pairs))
    assert "keyPassword" in str(fault_of(pairs | {"tls.server.keyPassword": "wrong"}))
    assert fault_of(pairs | {"tls.server.keyPassword": "open sesame"}) is None


def test_connections_of_our_own(files: CertificateFiles) -> None:
    unchecked = client_context(settings_of({"tls.enable": "true"}))
    assert (unchecked.verify_mode, unchecked.check_hostname) == (ssl.CERT_NONE, False)
    checked = client_context(
        settings_of(
            {
                "useTLS": "true",
                "tls.client.authServer": "true",
                "tls.client.trustCertPath": files.path("authority.pem"),
            }
            | pair(files, "client", "tls.client.")
        )
    )
    assert (checked.verify_mode, checked.check_hostname) == (ssl.CERT_REQUIRED, True)


def test_expiry(files: CertificateFiles, tmp_path: Path) -> None:
    assert expiry(files.path("server.pem")) is None
    assert expiry(str(tmp_path / "missing")) is None


def test_a_file_that_is_no_properties_file(tmp_path: Path) -> None:
    file = tmp_path / "tls.properties"
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TlsFault, match=r"tls\.config\.file"):
        settings_of({"tls.config.file": str(file)})


def test_a_misspelt_key_in_the_file_of_options_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "tls.properties"
    file.write_text("tls.server.need.client.auht=require\n")
    wanted = r"tls\.properties: tls\.server\.need\.client\.auht asks for TLS, .*: write tls\.server\.need\.client\.auth"
    with pytest.raises(TlsFault, match=wanted):
        settings_of({"tls.config.file": str(file)})
    file.write_text("example.server.name=a\n")
    settings_of({"tls.config.file": str(file)})
