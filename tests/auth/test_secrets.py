"""Passwords in the configuration are in no answer, no page and no log."""

import json
from pathlib import Path

from firearrow._native.wire.codes import RequestCode
from firearrow.broker.base.options import options_by_key
from tests.auth.secured import ROOT, SignedSocket
from tests.metrics.scrapes import watched
from tests.support.certificates import CertificateFiles

PASSWORD = "a-secret-of-the-configuration"
ANSWERS = (
    *(RequestCode.GET_BROKER_CONFIG, RequestCode.GET_BROKER_RUNTIME_INFO, RequestCode.GET_NAMESRV_CONFIG),
    *(RequestCode.GET_STATUS, RequestCode.GET_MACHINE, RequestCode.GET_HISTORY, RequestCode.GET_LOG),
)


def test_no_secret_of_the_configuration_is_shown(tmp_path: Path) -> None:
    files = CertificateFiles(tmp_path / "certificates")
    values = {
        "initAuthenticationUser": json.dumps({"username": ROOT, "password": PASSWORD}),
        "innerClientAuthenticationCredentials": json.dumps({"accessKey": "inner", "secretKey": PASSWORD}),
        "haSecret": PASSWORD,
        "tls.server.keyPassword": PASSWORD,
        "tls.client.keyPassword": PASSWORD,
    }
    assert values.keys() == {key for key, field in options_by_key().items() if field.metadata["secret"]}
    locked = files.lock("server", PASSWORD)
    more = {
        "authenticationEnabled": "true",
        "tls.enable": "true",
        "tls.server.certPath": files.path("server.pem"),
        "tls.server.keyPath": locked,
        "tls.client.certPath": files.path("server.pem"),
        "tls.client.keyPath": locked,
    }
    config = tmp_path / "broker.conf"
    config.write_text("".join(f"{key}={text}\n" for key, text in (values | more).items()))
    with watched(tmp_path / "store", "--config", str(config), "--log-level", "debug") as broker:
        with SignedSocket(broker.address, ROOT, PASSWORD) as root:
            for code in ANSWERS:
                answer = root.ask(code)
                shown = f"{answer.remark} {answer.ext}".encode() + answer.body
                assert PASSWORD.encode() not in shown, code
            assert b"(hidden)" in root.ask(RequestCode.GET_STATUS).body
        for page in ("/status", "/metrics", "/readyz"):
            assert PASSWORD.encode() not in broker.get(page)[2], page
    assert PASSWORD not in broker.log.read_text()
