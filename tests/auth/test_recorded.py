"""Conversations recorded with Apache's broker 5.5.0 that checks users and rules: ours answers the same.

Where ours refuses what Apache's lets any user do, the test says so.
"""

import base64
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from firearrow._native.wire.codes import RequestCode
from firearrow._native.wire.command import RemotingCommand
from firearrow.broker.auth.signatures import is_signed, sign
from tests.auth.secured import SignedSocket, ask_ok, create_user, grant, secured
from tests.support.client_socket import ClientSocket

RECORDED = Path(__file__).parent / "recorded"
NO_PERMISSION = 16
CLOSED = {25, 26, 28, 200, 400}
"""Any user may send these to Apache's broker; here `app` needs a right that it has not."""


def conversation(name: str) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    lines = list(map(json.loads, gzip.decompress((RECORDED / name).read_bytes()).splitlines()))
    yield from zip(lines[::2], lines[1::2], strict=True)


def replay(connection: ClientSocket, request: dict[str, Any]) -> Any:  # noqa: ANN401
    connection.send_raw(base64.b64decode(request["raw64"]))
    return connection.answer_to(request["opaque"])


def test_refusals(tmp_path: Path) -> None:
    closed = set()
    granted = False
    inner = 'innerClientAuthenticationCredentials={"accessKey":"inner","secretKey":"12345678"}'
    started = secured(tmp_path / "store", "brokerName=broker-a", inner)
    with started as broker, broker.connect() as connection:
        with SignedSocket(broker.address) as root:
            create_user(root, "app", "secret88")
            for resource in ("Topic:gz*", "Group:gz*"):
                grant(root, "app", resource, "Pub", "Sub")
        for request, recorded in conversation("refusals.jsonl.gz"):
            code = request["code"]
            granted |= "Cluster:*" in request.get("bodyText", "")
            answer = replay(connection, request)
            if code in CLOSED and recorded["code"] == 0 and not granted:
                assert (answer.code, code) == (NO_PERMISSION, code)
                assert answer.remark.startswith("User:app has no permission to access ")
                closed.add(code)
                continue
            wanted = recorded["remark"]
            if wanted is not None and "AdminBrokerProcessor" in wanted:
                wanted = wanted.partition(", org.apache")[0]
            if code != RequestCode.BATCH_ACK_MESSAGE:  # an empty one: our remark says so
                assert answer.remark == wanted, request
            assert answer.code == recorded["code"], request
            if code // 1000 == 3:
                assert answer.body.decode() == recorded.get("bodyText", ""), request
    assert closed == CLOSED


def test_mqadmin(tmp_path: Path) -> None:
    conversations = list(conversation("mqadmin.jsonl.gz"))
    in_order = sorted(conversations, key=lambda pair: pair[0]["ts"])
    with secured(tmp_path / "store") as broker:
        with SignedSocket(broker.address) as root:  # the state at the beginning of the recording
            create_user(root, "app", "secret99")
            for resource in ("Topic:gz*", "Group:gz*"):
                grant(root, "app", resource, "Pub", "Sub")
        for request, recorded in in_order:
            with broker.connect() as connection:
                answer = replay(connection, request)
            assert (answer.code, answer.remark) == (recorded["code"], recorded["remark"])
            assert answer.body.decode() == recorded.get("bodyText", ""), request["code"]


@pytest.mark.parametrize("code", [RequestCode.AUTH_GET_USER, RequestCode.AUTH_LIST_USER])
def test_only_super_users_see_passwords(tmp_path: Path, code: int) -> None:
    with secured(tmp_path / "store") as broker, SignedSocket(broker.address) as root:
        create_user(root, "app", "secret88")
        grant(root, "app", "Cluster:*", "Get")
        ext = {"username": "app"} if code == RequestCode.AUTH_GET_USER else {}
        assert b'"password":"secret88"' in ask_ok(root, code, ext).body
        with SignedSocket(broker.address, "app", "secret88") as app:
            body = ask_ok(app, code, ext).body
            assert b'"username":"app"' in body
            assert b"password" not in body


def test_signatures_of_the_java_client() -> None:
    """Of requests to name server and broker, with and without a body; one session has a wrong key."""
    lines = list(map(json.loads, gzip.decompress((RECORDED / "java.jsonl.gz").read_bytes()).splitlines()))
    requests = [(RemotingCommand.decode(base64.b64decode(line["raw64"])), line["right"]) for line in lines]
    assert {right for _, right in requests} == {True, False}
    assert len(requests) > 8
    for request, right in requests:
        assert is_signed(request, "12345678") == right, request
        copy = RemotingCommand(request.code, request.ext, request.body, version=request.version)
        sign(copy, request.ext["AccessKey"], "12345678")
        assert (copy.ext["Signature"] == request.ext["Signature"]) == right
