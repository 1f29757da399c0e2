"""Texts that clients of gRPC get name neither classes of Java nor of Python."""

from pathlib import Path

import pytest

from firearrow.broker.grpc.statuses import readable
from tests.support.broker_process import BrokerProcess
from tests.support.grpc_caller import GrpcCaller, signature

ACCOUNTS = """
accounts:
- accessKey: RocketMQ
  secretKey: "12345678"
  topicPerms:
  - topicA=DENY
"""


@pytest.mark.parametrize(
    ("remark", "text"),
    [
        ("org.apache.rocketmq.acl.common.AclException: No acl config for x", "No acl config for x"),
        ("java.lang.NullPointerException: null", "null"),
        ("topic[a.B: c] not exist", "topic[a.B: c] not exist"),
        ("service not available now", "service not available now"),
    ],
)
def test_a_remark_without_its_class(remark: str, text: str) -> None:
    assert readable(remark) == text


def test_refusals_of_plain_accounts(tmp_path: Path) -> None:
    path = tmp_path / "plain_acl.yml"
    path.write_text(ACCOUNTS)
    settings = ("--set", "aclEnable=true", "--set", f"rocketmq.acl.plain.file={path}")
    with BrokerProcess(tmp_path / "store", *settings) as broker:
        for user, password, text in (
            ("nobody", "12345678", "No acl config for nobody"),
            ("RocketMQ", "wrong-word", "Check signature failed for accessKey=RocketMQ"),
        ):
            with GrpcCaller(broker.address, metadata=signature(user, password)) as caller:
                code, found = caller.code("QueryRoute", topic={"name": "topicA"})
            assert (code, text in found, "org." in found) == ("UNAUTHORIZED", True, False), found
