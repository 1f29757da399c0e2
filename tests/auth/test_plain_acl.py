"""The accounts of `plain_acl.yml`: its form, its addresses, the checks in Apache's order, hot reload, migration."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from firearrow._native.protocol.access_model import address_of
from firearrow._native.wire.codes import RequestCode
from firearrow.broker.auth.plain_accounts import (
    ACCOUNTS_MAX,
    PERMISSIONS_MAX,
    Permission,
    PlainAcl,
)
from firearrow.broker.auth.plain_files import FILES_MAX, PlainFiles
from firearrow.broker.auth.remote_addresses import RemoteAddresses
from tests.auth.secured import SignedSocket, options
from tests.support.broker_process import BrokerProcess
from tests.support.eventually import eventually
from tests.support.requests import SUBSCRIPTION, SUSPEND, pull_ext, send_ext, topic_ext
from tests.support.startup import constants

EXCEPTION = "org.apache.rocketmq.acl.common.AclException: "
FILE = """\
globalWhiteRemoteAddresses:
  - 10.10.103.*
accounts:
  - accessKey: RocketMQ      # a plain one
    secretKey: 12345678
    whiteRemoteAddress:
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: SUB
    topicPerms:
    - topicA=DENY
    - topicB=PUB|SUB
    - topicC=SUB
    groupPerms:
      - groupA=DENY
      - groupB=PUB|SUB
  - accessKey: rocketmq2
    secretKey: '12345678'
    whiteRemoteAddress: 192.168.1.*
    admin: true
"""


FLOW = """\
{ globalWhiteRemoteAddresses: [10.10.103.*], accounts: [
  { accessKey: RocketMQ, secretKey: 12345678, whiteRemoteAddress: , admin: false, defaultTopicPerm: DENY,
    defaultGroupPerm: SUB, topicPerms: [topicA=DENY, topicB=PUB|SUB, topicC=SUB],   # as SnakeYAML reads it
    groupPerms: [groupA=DENY, "groupB=PUB|SUB"] },
  { accessKey: rocketmq2, secretKey: '12345678', whiteRemoteAddress: 192.168.1.*, admin: true },
] }
"""


@pytest.mark.parametrize("text", [FILE, FLOW])
def test_apaches_example(text: str) -> None:
    acl = PlainAcl.parse(text)
    plain, admin = acl.accounts["RocketMQ"], acl.accounts["rocketmq2"]
    assert (plain.secret_key, plain.admin, plain.default_topic, plain.default_group) == (
        "12345678",
        False,
        Permission.DENY,
        Permission.SUB,
    )
    assert plain.topics == {
        "topicA": Permission.DENY,
        "topicB": Permission.PUB | Permission.SUB,
        "topicC": Permission.SUB,
    }
    assert plain.groups == {"groupA": Permission.DENY, "groupB": Permission.PUB | Permission.SUB}
    assert admin.admin
    assert admin.white.match(address_of("192.168.1.77"))
    assert not plain.white.match(address_of("192.168.1.77"))
    assert acl.white[0].match(address_of("10.10.103.9"))
    assert "12345678" not in repr(acl)


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("*", "1.2.3.4 ::1", ""),
        ("*.*.*.*", "1.2.3.4", ""),
        ("", "", "1.2.3.4 ::1"),
        ("1.2.3.4", "1.2.3.4 ::ffff:1.2.3.4", "1.2.3.5"),
        ("1.2.3.4, 5.6.7.8", "1.2.3.4 5.6.7.8", "1.2.3.5"),
        ("1.2.3.{4,6}", "1.2.3.4 1.2.3.6", "1.2.3.5"),
        ("1.2.3.4-9", "1.2.3.4 1.2.3.9", "1.2.3.10 1.2.3.3"),
        ("1.2.*.*", "1.2.0.0 1.2.255.255", "1.3.0.0"),
        ("1.2.3-4.*", "1.2.4.9", "1.2.5.9"),
        ("::1", "::1", "::2 1.2.3.4"),
        ("1:2:3:4:5:6:7:*", "1:2:3:4:5:6:7:ffff", "1:2:3:4:5:6:8:1"),
        ("1:2:3:4:5:6:7:10-20", "1:2:3:4:5:6:7:1f", "1:2:3:4:5:6:7:21"),
    ],
)
def test_addresses(text: str, inside: str, outside: str) -> None:
    addresses = RemoteAddresses.parse(text)
    assert all(addresses.match(address_of(each)) for each in inside.split())
    assert not any(addresses.match(address_of(each)) for each in outside.split())


@pytest.mark.parametrize(
    "text", ["1.2.3", "1.2.3.256", "1.2.3.9-4", "x", "1.2.3.4}", "1.*", "1.2.3.-4", "1:2:*"]
)
def test_other_addresses_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"address|range"):
        RemoteAddresses.parse(text)


def test_accounts_and_permissions_are_bounded() -> None:
    account = "- accessKey: key{n:08}\n  secretKey: 12345678\n"
    accounts = "accounts:\n" + "".join(account.format(n=n) for n in range(ACCOUNTS_MAX))
    assert len(PlainAcl.parse(accounts).accounts) == ACCOUNTS_MAX
    with pytest.raises(ValueError, match=f"{ACCOUNTS_MAX + 1} accounts"):
        PlainAcl.parse(accounts + account.format(n=ACCOUNTS_MAX))
    one = (
        "accounts:\n"
        + account.format(n=0)
        + "  topicPerms:\n"
        + "".join(f"  - t{n}=SUB\n" for n in range(PERMISSIONS_MAX))
    )
    assert len(PlainAcl.parse(one).accounts["key00000000"].topics) == PERMISSIONS_MAX
    with pytest.raises(ValueError, match=f"{PERMISSIONS_MAX + 1} permissions"):
        PlainAcl.parse(one + "  - more=SUB\n")


Open = Callable[..., SignedSocket]


@pytest.fixture
def connect() -> Iterator[Open]:
    """Connections of a user; closed after the test."""
    with ExitStack() as stack:
        yield lambda address, *user: stack.enter_context(SignedSocket(address, *user))


def replace(path: Path, text: str) -> None:
    """At once: the broker reads no half of it."""
    new = path.with_suffix(".new")
    new.write_text(text)
    new.replace(path)


READ_SOON = constants({"firearrow.broker.app.services:ACCESS_READ_S": 0.2})


@contextmanager
def broker_with(tmp_path: Path, text: str, *more: str) -> Iterator[BrokerProcess]:
    path = tmp_path / "plain_acl.yml"
    path.write_text(text)
    pairs = ("aclEnable=true", f"rocketmq.acl.plain.file={path}", *more)
    words = (word for pair in pairs for word in ("--set", pair))
    with BrokerProcess(tmp_path / "store", *words, environment=READ_SOON) as broker:
        yield broker


def test_the_checks_in_apaches_order(tmp_path: Path, connect: Open) -> None:
    with broker_with(tmp_path, FILE) as broker:
        admin = connect(broker.address, "rocketmq2", "12345678")
        plain = connect(broker.address, "RocketMQ", "12345678")
        for topic in ("topicA", "topicB", "topicC", "topicD"):
            assert admin.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(topic)).code == 0

        def remark(
            code: int, ext: dict[str, str], body: bytes = b"x", of: SignedSocket = plain
        ) -> str | None:
            answer = of.ask(code, ext, body)
            assert answer.code == (0 if answer.remark is None else 1), answer.remark
            return None if answer.remark is None else answer.remark.removeprefix(EXCEPTION)

        v2 = RequestCode.SEND_MESSAGE_V2
        assert remark(v2, send_ext("topicB"), of=connect(broker.address, "")) == "No accessKey is configured"
        other = connect(broker.address, "unknown", "12345678")
        assert remark(v2, send_ext("topicB"), of=other) == "No acl config for unknown"
        wrong = connect(broker.address, "RocketMQ", "87654321")
        assert remark(v2, send_ext("topicB"), of=wrong) == "Check signature failed for accessKey=RocketMQ"
        for _ in range(3):  # the first takes the complete path
            assert remark(v2, send_ext("topicB")) is None
            for topic in ("topicA", "topicC", "topicD"):
                assert remark(v2, send_ext(topic)) == f"No default permission for topic:{topic}"
        assert (
            remark(v2, send_ext("RMQ_SYS_TRACE_TOPIC"))
            != "No default permission for topic:RMQ_SYS_TRACE_TOPIC"
        )
        code = RequestCode.UPDATE_BROKER_CONFIG
        needed = f"Need admin permission for request code={int(code)}, but accessKey=RocketMQ is not"
        assert remark(code, {}, b"traceOn=true") == needed
        assert remark(RequestCode.CLEAN_UNUSED_TOPIC, {}, b"") == "Need admin permission"
        for code in (code for code in RequestCode if 30_001 <= code < 31_000):  # also with names it may read
            named = {"topic": "topicB", "group": "groupB"}
            assert (
                remark(code, named, b"")
                == f"Need admin permission for request code={int(code)}, but accessKey=RocketMQ is not"
            )
        for code in (RequestCode.GET_LAG, RequestCode.LIST_CONNECTIONS, RequestCode.GET_STATUS):
            assert admin.ask(code, {}).code == 0
        pulled = plain.ask(RequestCode.PULL_MESSAGE, pull_ext("topicC", consumerGroup="groupB"))
        assert pulled.code in (0, 19, 21)
        answer = plain.ask(RequestCode.PULL_MESSAGE, pull_ext("topicC", consumerGroup="groupA"))
        assert (answer.code, answer.remark) == (1, EXCEPTION + "No default permission for group:groupA")
        assert plain.ask(RequestCode.GET_BROKER_CONFIG).code == 0


def test_the_topic_of_traces_opens_no_other(tmp_path: Path, connect: Open) -> None:
    """Every account may write traces; a request that names their topic and uses another one needs its right, too."""
    with broker_with(tmp_path, FILE) as broker:
        admin, plain = (connect(broker.address, name, "12345678") for name in ("rocketmq2", "RocketMQ"))
        assert admin.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext("topicD")).code == 0
        half = "TRAN_MSG\x01true\x02PGROUP\x01PG\x02UNIQ_KEY\x01k\x02"
        sent = admin.ask(RequestCode.SEND_MESSAGE_V2, send_ext("topicD", f="4", i=half), b"x")
        assert sent.code == 0, sent.remark
        end = {
            "topic": "RMQ_SYS_TRACE_TOPIC",
            "producerGroup": "PG",
            "tranStateTableOffset": sent.ext["queueOffset"],
            "commitLogOffset": str(int(sent.ext["msgId"][-16:], 16)),
            "commitOrRollback": "8",
            "fromTransactionCheck": "false",
            "msgId": "k",
        }
        answer = plain.ask(RequestCode.END_TRANSACTION, end)
        assert (answer.code, answer.remark) == (
            1,
            EXCEPTION + "No default permission for the topic of this message",
        )


def test_a_white_address_needs_no_signature(tmp_path: Path) -> None:
    text = FILE.replace("10.10.103.*", "127.0.0.1")
    with broker_with(tmp_path, text) as broker, SignedSocket(broker.address, "") as nobody:
        assert nobody.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext("T")).code == 0


def test_the_file_is_read_again(tmp_path: Path, connect: Open) -> None:
    path = tmp_path / "plain_acl.yml"
    with broker_with(tmp_path, FILE) as broker, SignedSocket(broker.address, "RocketMQ", "12345678") as plain:
        admin = connect(broker.address, "rocketmq2", "12345678")
        assert admin.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext("topicB")).code == 0

        def code() -> int:
            return plain.ask(RequestCode.SEND_MESSAGE_V2, send_ext("topicB"), b"x").code

        def await_code(wanted: int) -> None:
            eventually(lambda: code() == wanted, 20)

        assert (code(), code(), code()) == (0, 0, 0)
        replace(path, FILE.replace("topicB=PUB|SUB", "topicB=SUB"))
        await_code(1)
        replace(path, FILE + "accounts:\n")
        eventually(lambda: "has accounts for the second time" in broker.log.read_text(), 20)
        assert code() == 1
        replace(path, FILE)
        await_code(0)


LOADED = "files with accounts were loaded"


def test_a_held_pull_with_a_body_is_answered_after_the_file_is_read_again(
    tmp_path: Path, connect: Open
) -> None:
    """Its body was signed, too, and is not kept; a new secret key refuses it."""
    path = tmp_path / "plain_acl.yml"
    with broker_with(tmp_path, FILE) as broker:
        admin, plain = (connect(broker.address, name, "12345678") for name in ("rocketmq2", "RocketMQ"))
        assert admin.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext("topicC")).code == 0
        ext = {
            "sysFlag": str(SUSPEND | SUBSCRIPTION),
            "suspendTimeoutMillis": "15000",
            "consumerGroup": "groupB",
        }
        files = FILE.replace("topicB=PUB|SUB", "topicB=SUB"), FILE.replace("12345678", "another12")
        for code, text in enumerate(files):
            low = plain.ask(RequestCode.PULL_MESSAGE, pull_ext("topicC", consumerGroup="groupB"))
            offset = int(low.ext["maxOffset"])
            opaque = plain.send_request(
                RequestCode.PULL_MESSAGE, pull_ext("topicC", offset, **ext), b"signed"
            )
            plain.ask(RequestCode.PULL_MESSAGE, pull_ext("topicC", consumerGroup="groupB"))
            replace(path, text)
            eventually(lambda least=code: broker.log.read_text().count(LOADED) > least, 20)
            if code:
                admin.password = "another12"
            assert admin.ask(RequestCode.SEND_MESSAGE_V2, send_ext("topicC"), b"x").code == 0
            answer = plain.answer_to(opaque)
            assert answer.code == code, answer.remark


TYPED = FILE.replace("admin: false", "admin: 'false'") + "dataVersion:\n- timestamp: 5\n  counter: 3\n"


class Administration:
    """A broker with FILE, and its two accounts."""

    def __init__(self, path: Path, broker: BrokerProcess, connect: Open) -> None:
        self.path, self.broker, self.connect = path, broker, connect
        self.admin = connect(broker.address, "rocketmq2", "12345678")
        self.plain = connect(broker.address, "RocketMQ", "12345678")
        assert self.admin.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext("topicB")).code == 0

    def may_send(self, socket: SignedSocket) -> bool:
        return socket.ask(RequestCode.SEND_MESSAGE_V2, send_ext("topicB"), b"x").code == 0

    def await_send(self, socket: SignedSocket, wanted: bool) -> None:
        eventually(lambda: self.may_send(socket) == wanted, 20)


@pytest.fixture
def administration(tmp_path: Path, connect: Open) -> Iterator[Administration]:
    with broker_with(tmp_path, TYPED) as broker:
        yield Administration(tmp_path / "plain_acl.yml", broker, connect)


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Administration]:
    """One for the tests that change nothing."""
    folder = tmp_path_factory.mktemp("unchanged")
    with broker_with(folder, TYPED) as broker, ExitStack() as stack:
        yield Administration(
            folder / "plain_acl.yml",
            broker,
            lambda address, *user: stack.enter_context(SignedSocket(address, *user)),
        )


UPDATE, DELETE = RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, RequestCode.DELETE_ACL_CONFIG


def test_an_account_is_changed_where_it_is(administration: Administration) -> None:
    admin, plain = administration.admin, administration.plain
    assert administration.may_send(plain)
    given = {"accessKey": "RocketMQ", "secretKey": "secret: # 1", "topicPerms": "topicB=SUB,topicZ=PUB"}
    assert admin.ask(UPDATE, given).code == 0
    assert plain.ask(RequestCode.SEND_MESSAGE_V2, send_ext("topicB"), b"x").remark == (
        EXCEPTION + "Check signature failed for accessKey=RocketMQ"
    )
    plain.password = "secret: # 1"
    assert not administration.may_send(plain)
    assert administration.may_send(admin)
    text = administration.path.read_text()
    assert text.index("accessKey: RocketMQ") < text.index("accessKey: rocketmq2")
    acl = PlainAcl.parse(text)
    changed = acl.accounts["RocketMQ"]
    assert changed.topics == {"topicB": Permission.SUB, "topicZ": Permission.PUB}
    assert changed.groups["groupB"] == Permission.PUB | Permission.SUB
    assert not changed.admin
    assert acl.accounts["rocketmq2"].admin
    assert "counter: 4" in text
    info = admin.ask(RequestCode.GET_BROKER_CLUSTER_ACL_INFO).ext
    assert json.loads(info["version"])["counter"] == 4
    assert list(json.loads(info["allAclFileVersion"])) == [str(administration.path)]
    assert info["clusterName"] == "DefaultCluster"


def test_accounts_are_created_and_deleted(administration: Administration) -> None:
    admin = administration.admin
    given = {"accessKey": "newcomer", "secretKey": "0123456", "defaultTopicPerm": "PUB", "admin": "false"}
    assert admin.ask(UPDATE, given).code == 0
    new = administration.connect(administration.broker.address, "newcomer", "0123456")
    assert administration.may_send(new)
    everything = json.loads(admin.ask(RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG).body)
    assert everything["globalWhiteAddrs"] == ["10.10.103.*"]
    names = [each["accessKey"] for each in everything["plainAccessConfigs"]]
    assert names == ["RocketMQ", "rocketmq2", "newcomer"]
    assert everything["plainAccessConfigs"][2]["secretKey"] == "0123456"
    assert admin.ask(DELETE, {"accessKey": "newcomer"}).code == 0
    assert not administration.may_send(new)
    answer = admin.ask(DELETE, {"accessKey": "newcomer"})
    assert (answer.code, answer.remark) == (
        210,
        "The accesskey[newcomer] corresponding to accessConfig has been deleted failed.",
    )


@pytest.mark.parametrize(
    ("given", "remark"),
    [
        ({"secretKey": "123456"}, "cannot be null and length should longer than 6"),
        ({"topicPerms": "topicA"}, "Parse Resource format error for topicA."),
        ({"topicPerms": ""}, "Parse Resource format error for ."),
        ({"groupPerms": "g=ALL"}, "Parse resource permission error for g=ALL."),
        ({"whiteRemoteAddress": "nonsense"}, "is not an address"),
        ({"whiteRemoteAddress": "1.2.3.4\nadmin: true"}, "cannot be printed"),
        ({"accessKey": "k" * 256}, "longer than 255 characters"),
        ({"secretKey": "a\nadmin: true"}, "cannot be printed"),
    ],
)
def test_what_is_wrong_changes_nothing(unchanged: Administration, given: dict[str, str], remark: str) -> None:
    before = unchanged.path.read_bytes()
    answer = unchanged.admin.ask(UPDATE, {"accessKey": "RocketMQ", "secretKey": "12345678"} | given)
    assert answer.code == 209
    assert remark in (answer.remark or "")
    assert unchanged.path.read_bytes() == before
    assert unchanged.may_send(unchanged.plain)


def test_only_an_admin_account_may(unchanged: Administration) -> None:
    before = unchanged.path.read_bytes()
    for code in (UPDATE, DELETE, RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, 54):
        ext = {"accessKey": "rocketmq2", "secretKey": "87654321", "globalWhiteAddrs": "*"}
        answer = unchanged.plain.ask(code, ext)
        assert (answer.code, answer.remark) == (1, EXCEPTION + "Need admin permission")
    assert unchanged.plain.ask(RequestCode.GET_BROKER_CLUSTER_ACL_INFO).code == 0
    assert unchanged.path.read_bytes() == before


def test_global_white_addresses(administration: Administration, tmp_path: Path) -> None:
    code, admin = RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, administration.admin
    nobody = administration.connect(administration.broker.address, "")
    assert not administration.may_send(nobody)
    other = tmp_path / "broker.yml"
    other.write_text("a: b\n")
    answer = admin.ask(code, {"globalWhiteAddrs": "127.0.0.*", "aclFileFullPath": str(other)})
    assert (answer.code, other.read_text()) == (211, "a: b\n")
    assert admin.ask(code, {"globalWhiteAddrs": "127.0.0.x"}).code == 211
    given = {"globalWhiteAddrs": "10.0.0.1,127.0.0.*", "aclFileFullPath": str(administration.path)}
    assert admin.ask(code, given).code == 0
    assert administration.may_send(nobody)
    assert len(PlainAcl.parse(administration.path.read_text()).white) == 2


def test_files_in_the_folder(administration: Administration, tmp_path: Path) -> None:
    """They are read while the broker runs; an account counts in the first file; a faulty file changes nothing."""
    folder = tmp_path / "acl" / "team"
    folder.mkdir(parents=True)
    plain = administration.plain
    member = administration.connect(administration.broker.address, "member77", "12345678")
    account = "accounts:\n- accessKey: {}\n  secretKey: '12345678'\n  defaultTopicPerm: {}\n"
    replace(folder / "tools.yml", account.format("member77", "PUB"))
    replace(folder / "b.yaml", account.format("member77", "PUB"))
    assert administration.may_send(plain)
    replace(folder.parent / "a.yml", account.format("RocketMQ", "SUB"))
    administration.await_send(plain, False)
    administration.await_send(member, True)
    replace(folder / "b.yaml", "accounts: [")
    replace(folder.parent / "a.yml", "globalWhiteRemoteAddresses: [1.2.3.4]\n")
    administration.await_send(plain, True)
    assert administration.may_send(member)
    given = {"accessKey": "member77", "secretKey": "12345678", "defaultTopicPerm": "DENY"}
    assert administration.admin.ask(UPDATE, given).code == 209
    replace(folder / "b.yaml", account.format("member77", "PUB"))
    before = administration.path.read_bytes()
    assert administration.admin.ask(UPDATE, given).code == 0
    assert "defaultTopicPerm: DENY" in (folder / "b.yaml").read_text()
    assert administration.path.read_bytes() == before
    assert not administration.may_send(member)
    (folder / "b.yaml").unlink()
    eventually(
        lambda: (
            "No acl config" in member.ask(RequestCode.SEND_MESSAGE_V2, send_ext("topicB"), b"x").remark or ""
        ),
        20,
    )


def test_files_are_bounded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "acl"
    folder.mkdir()
    (tmp_path / "plain_acl.yml").write_text(FILE)
    for n in range(FILES_MAX + 1):
        (folder / f"{n}.yml").write_text("accounts: []\n")
    files = PlainFiles(tmp_path / "plain_acl.yml", folder)
    files.load()
    assert len(list(files)) == FILES_MAX
    assert "RocketMQ" in files.acl.accounts
    assert "the rest is not read" in caplog.text


@pytest.mark.parametrize("text", [None, "accounts: [", FILE.replace("12345678", "1234")])
def test_a_file_that_cannot_be_used_stops_the_start(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "plain_acl.yml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(Exception, match=r"fix it, or name another file in rocketmq\.acl\.plain\.file"):
        BrokerProcess(
            tmp_path / "store", "--set", "aclEnable=true", "--set", f"rocketmq.acl.plain.file={path}"
        )


def test_accounts_are_migrated(tmp_path: Path, connect: Open) -> None:
    path = tmp_path / "plain_acl.yml"
    path.write_text(FILE)
    more = ("migrateAuthFromV1Enabled=true", f"rocketmq.acl.plain.file={path}")
    with BrokerProcess(tmp_path / "store", *options(*more)) as broker, SignedSocket(broker.address) as root:
        users = root.ask(RequestCode.AUTH_LIST_USER).body
        assert b'"userType":"Super","username":"rocketmq2"' in users
        assert b'"userType":"Normal","username":"RocketMQ"' in users
        body = root.ask(RequestCode.AUTH_GET_ACL, {"subject": "User:RocketMQ"}).body.decode()
        assert '{"actions":["All"],"decision":"Deny","resource":"Topic:topicA"}' in body
        assert '{"actions":["Pub","Sub"],"decision":"Allow","resource":"Group:groupB"}' in body
        assert '{"actions":["Sub"],"decision":"Allow","resource":"Group:*"}],"policyType":"Default"' in body
        plain = connect(broker.address, "RocketMQ", "12345678")
        assert plain.ask(RequestCode.SEND_MESSAGE_V2, send_ext("topicC"), b"x").code == 16


def test_a_star_means_no_more_after_the_migration(tmp_path: Path, connect: Open) -> None:
    """In `plain_acl.yml` it is a letter of a name; as a resource it would mean every topic from the next start on."""
    path = tmp_path / "plain_acl.yml"
    path.write_text(FILE.replace("topicA=DENY", "'*=PUB'").replace("topicC=SUB", "'topic*=PUB'"))
    more = ("migrateAuthFromV1Enabled=true", f"rocketmq.acl.plain.file={path}")
    for _ in range(2):
        with BrokerProcess(tmp_path / "store", *options(*more)) as broker:
            root, plain = connect(broker.address), connect(broker.address, "RocketMQ", "12345678")
            assert root.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext("topicD")).code == 0
            assert plain.ask(RequestCode.SEND_MESSAGE_V2, send_ext("topicD"), b"x").code == 16
            assert broker.stop() == 0


def too_large(secret: str, permissions: int) -> str:
    account = f"accounts:\n- accessKey: keykey00\n  secretKey: '{secret}'\n  topicPerms:\n"
    return account + "".join(f"  - t{n}=SUB\n" for n in range(permissions))


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (too_large("12345678", 1001), "1003 policy entries of one user, at most 1000 are allowed"),
        (too_large("1" * 1025, 1), "the password has 1025 characters, at most 1024 are allowed"),
    ],
)
def test_an_account_that_no_user_can_be_stops_each_start(tmp_path: Path, text: str, fault: str) -> None:
    path = tmp_path / "plain_acl.yml"
    path.write_text(text)
    more = ("migrateAuthFromV1Enabled=true", f"rocketmq.acl.plain.file={path}")
    for _ in range(2):
        with pytest.raises(Exception, match=fault):
            BrokerProcess(tmp_path / "store", *options(*more))
