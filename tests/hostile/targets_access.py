"""Parsers of users, rules, signatures, and of bodies before their handlers read them."""

from firearrow._native.protocol import fastjson
from firearrow._native.wire.command import RemotingCommand, WireError
from firearrow.broker.auth import bodies
from firearrow.broker.auth.plain_accounts import PlainAcl
from firearrow.broker.auth.remote_addresses import RemoteAddresses
from firearrow.broker.auth.request_rights import rule_of
from firearrow.broker.auth.signatures import is_signed, sign
from firearrow.broker.auth.tables import AclTable, UserTable
from firearrow.broker.base.errors import Refusal
from firearrow.broker.tables import json_fields
from tests.auth.every_code import CASES, encoded
from tests.auth.test_plain_acl import FILE
from tests.hostile.fuzz import Target
from tests.hostile.targets_tables import reads

USERS = (
    b'{"users":[{"username":"a","password":"p","userType":"Super","userStatus":"enable"},'
    b'{"username":"b","password":"q"}]}'
)
ACLS = (
    b'{"acls":[{"subject":"User:a","policies":[{"policyType":"Custom","entries":[{"resource":"Topic:a*",'
    b'"actions":["Pub","Sub"],"decision":"Allow","sourceIps":["10.0.0.0/8","::1"]}]}]}]}'
)


class NoRecords:
    """Facts of a broker without messages."""

    cluster = "C"
    names_lmqs = True

    def topic_at(self, physical_offset: int) -> str | None:
        return None


def signed_frames() -> list[bytes]:
    found = []
    for serializer in (0, 1):
        command = RemotingCommand(
            310, {"b": "T", "i": "KEYS\x01\u00e9\x02", "e": "0"}, b"body", serializer=serializer
        )
        sign(command, "app", "secret")
        found.append(command.encode())
    return found


def read_signature(data: bytes) -> None:
    command = RemotingCommand.decode(data)
    before = dict(command.ext)
    is_signed(command, "secret")
    assert command.ext == before


def read_acl_info(data: bytes) -> None:
    bodies.read_policies(json_fields.members(fastjson.loads_body(data), "body"))


def requests() -> list[bytes]:
    """Of codes whose rules read the body."""
    return [
        RemotingCommand(code, case.ext, encoded(case.body)).encode()
        for code, cases in CASES.items()
        for case in cases
        if code <= 0x7FFFFFFF and "{" not in str(case.ext.values())
    ]


def read_needs(data: bytes) -> None:
    command = RemotingCommand.decode(data)
    for need in rule_of(command.code).needs(command, NoRecords()):
        assert need.resource.type.value in ("Topic", "Group", "Cluster")
        assert need.actions


ACCESS = (
    Target("users.json", lambda: [USERS], reads(lambda: UserTable(lambda: None))),
    Target("acls.json", lambda: [ACLS], reads(lambda: AclTable(lambda: None))),
    Target("AclInfo", lambda: [ACLS[9:-2]], read_acl_info, (ValueError, Refusal)),
    Target("plain_acl.yml", lambda: [FILE.encode()], lambda data: PlainAcl.parse(data.decode())),
    Target(
        "white address",
        lambda: [b"1.2.3.4-9", b"1.2.3.{4,5}", b"1:2:3:4:5:6:7:*"],
        lambda data: RemoteAddresses.parse(data.decode()),
    ),
    Target("signature", signed_frames, read_signature, (WireError,)),
    Target("needs of a request", requests, read_needs, (WireError, ValueError)),
)
