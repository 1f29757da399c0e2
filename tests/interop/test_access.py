"""Users and rules with the official clients and Apache's mqadmin, against us and Apache alike.

Also with the accounts of `plain_acl.yml`, against us and Apache 4.9.
"""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from firearrow._native.wire.codes import RequestCode
from tests.auth.secured import INITIAL, ROOT, ROOT_PASSWORD, SignedSocket, ask_ok, create_user, grant
from tests.interop.conftest import Clients, Drivers, clients
from tests.interop.driver import Failed
from tests.interop.messages import hexed
from tests.interop.peers import Apache, Apache4, FireArrow, Peer, address
from tests.interop.toolchain import java_class_path, need
from tests.support.requests import send_ext, topic_ext

CLIENTS = ("java5", "java4", "go")
REFUSED_S = 5.0
"""A wrong password is refused three times, of which the answers wait. Without a route Java takes longer."""
OF = "org.apache.rocketmq.auth."
SETTINGS = {
    "authenticationEnabled": "true",
    "authenticationProvider": f"{OF}authentication.provider.DefaultAuthenticationProvider",
    "authenticationMetadataProvider": f"{OF}authentication.provider.LocalAuthenticationMetadataProvider",
    "initAuthenticationUser": INITIAL,
    "innerClientAuthenticationCredentials": '{"accessKey":"inner","secretKey":"inner-secret"}',
    "authorizationEnabled": "true",
    "authorizationProvider": f"{OF}authorization.provider.DefaultAuthorizationProvider",
    "authorizationMetadataProvider": f"{OF}authorization.provider.LocalAuthorizationMetadataProvider",
}


@pytest.fixture(scope="module")
def guarded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    """A broker that checks users and rules: ours, or with `--against apache` Apache's."""
    need(lambda: java_class_path("client5"))
    store = tmp_path_factory.mktemp("access") / "store"
    kind = Apache if request.config.getoption("--against", "firearrow") == "apache" else FireArrow
    with kind(store, SETTINGS | {"brokerName": "broker-a"}) as peer:
        yield peer


@pytest.fixture
def make(guarded: Peer, drivers: Drivers, tmp_path: Path) -> Iterator[Clients]:
    with clients(guarded, drivers, tmp_path) as make:
        yield make


@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_with_keys_sends_and_consumes(guarded: Peer, make: Clients, name: str) -> None:
    user, topic, group = f"user-{name}", f"Access-{name}", f"access-{name}"
    with SignedSocket(address(guarded.address)) as root:
        ask_ok(root, RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(topic))
        ask_ok(root, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, {"groupName": group})
        create_user(root, user, "secret-word")
        grant(root, user, f"Topic:{topic}", "Pub", "Sub", "Get")
        grant(root, user, f"Group:{group}", "Sub", "Get")
        client, signed = make(name, (user, "secret-word"))
        bodies = hexed("one", "two", "three")
        client.ask("send", group=f"P-{topic}", topic=topic, body=bodies, **signed)
        client.ask("consume", name=group, group=group, topic=topic, **signed)
        client.await_bodies([group], bodies)
        client.ask("stop", name=group)
        grant(root, user, f"Topic:{topic}", "Pub", decision="Deny")
        with pytest.raises(
            Failed, match=r"the decision is deny|MQClientException 16"
        ):  # Java has the code only
            client.ask("send", group=f"P-{topic}", topic=topic, body=bodies, **signed)


@pytest.mark.parametrize(
    "name", ["java5", *(pytest.param(name, marks=pytest.mark.long) for name in ("java4", "go"))]
)
def test_a_client_with_wrong_keys_is_told_so(guarded: Peer, make: Clients, name: str) -> None:
    topic = f"Wrong-{name}"
    with SignedSocket(address(guarded.address)) as root:
        ask_ok(root, RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(topic))
    client, signed = make(name, (ROOT, "wrong"))
    # ours has answered the route, which Apache's name server does for everybody: the broker says why it refuses
    wanted = (
        "check signature failed|MQClientException 16" if guarded.kind == "firearrow" else "16|route|No topic"
    )
    began = time.monotonic()
    with pytest.raises(Failed, match=wanted):
        client.ask("send", group=f"P-{topic}", topic=topic, body=hexed("x"), **signed)
    assert time.monotonic() - began < REFUSED_S


def test_mqadmin(guarded: Peer, make: Clients) -> None:
    admin, signed = make("java5", (ROOT, ROOT_PASSWORD))

    def printed(line: str) -> str:
        [output] = admin.ask("mqadmin", argument=line.format(b=guarded.address).split(), **signed)
        return str(output["text"])

    assert "success" in printed("createUser -b {b} -u tool -p tool-word -t Normal")
    assert re.search(r"tool +\S+ +Normal +enable", printed("getUser -b {b} -u tool"))
    assert "success" in printed("updateUser -b {b} -u tool -s disable")
    assert re.search(r"tool +\S+ +Normal +disable", printed("listUser -b {b} -f tool"))
    assert "success" in printed(
        "createAcl -b {b} -s User:tool -r Topic:t*,Group:g -a Pub,Sub -d Allow -i 10.0.0.0/8"
    )
    assert "success" in printed("updateAcl -b {b} -s User:tool -r Topic:t* -a Sub -d Deny")
    text = printed("getAcl -b {b} -s User:tool")
    assert re.search(r"User:tool +Custom +Topic:t\* +\[Sub\] .*Deny", text), text
    assert re.search(r"User:tool +Custom +Group:g +\[Pub, Sub\] +\[10.0.0.0/8\] +Allow", text), text
    assert "User:tool" in printed("listAcl -b {b} -s tool")
    assert "success" in printed("copyUser -f {b} -t {b} -u tool")
    assert "success" in printed("copyAcl -f {b} -t {b} -s User:tool")
    assert "success" in printed("deleteAcl -b {b} -s User:tool -r Group:g")
    assert "Group:g" not in printed("getAcl -b {b} -s User:tool")
    assert "success" in printed("deleteUser -b {b} -u tool")
    assert "tool" not in printed("listUser -b {b}")


def test_mqadmin_copies_users_and_rules(guarded: Peer, make: Clients, tmp_path: Path) -> None:
    """To another broker, ours, and back, where all rules of a user were deleted: they log in with the same password,
    and have the same rights."""
    admin, signed = make("java5", (ROOT, ROOT_PASSWORD))

    def printed(line: str) -> str:
        words = line.format(b=guarded.address, o=other.address).split()
        [output] = admin.ask("mqadmin", argument=words, **signed)
        return str(output["text"])

    def sends(peer: Peer, user: str) -> str | None:
        """The remark of the refusal."""
        with SignedSocket(address(peer.address), user, "copied-word") as socket:
            return socket.ask(RequestCode.SEND_MESSAGE_V2, send_ext("Copied"), b"x").remark

    def rules(broker: str, user: str) -> list[str]:
        lines = printed(f"getAcl -b {broker} -s User:{user}").splitlines()
        return sorted(" ".join(line.split()) for line in lines if f"User:{user} " in line)

    with FireArrow(tmp_path / "other", SETTINGS | {"brokerName": "other"}) as other:
        for at in (guarded, other):
            with SignedSocket(address(at.address)) as root:
                ask_ok(root, RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext("Copied"))
        for user in ("first", "second"):
            assert "success" in printed(f"createUser -b {{b}} -u {user} -p copied-word -t Normal")
            assert "success" in printed(f"createAcl -b {{b}} -s User:{user} -r Topic:Copied -a Pub -d Allow")
        assert "success" in printed("updateAcl -b {b} -s User:first -r Group:g*,Topic:More -a Sub -d Allow")
        assert "success" in printed(
            "updateAcl -b {b} -s User:first -r Topic:More -a Pub,Sub -d Deny -i 10.0.0.1"
        )
        assert sends(guarded, "first") is None
        assert "User:first is not found" in (sends(other, "first") or "")
        text = printed("copyUser -f {b} -t {o} -u first,second")
        assert text.count("success") == 2, text
        text = printed("copyAcl -f {b} -t {o} -s User:first,User:second")
        assert text.count("success") == 2, text
        before = rules("{b}", "first")
        assert [line.split()[2] for line in before] == ["Group:g*", "Topic:Copied", "Topic:More"]
        assert rules("{o}", "first") == before
        assert sends(other, "first") is None
        listed = printed("listAcl -b {o} -s second") + printed("listAcl -b {o} -r Group:g*")
        assert re.findall(r"User:(\w+) +Custom +(\S+)", listed) == [
            ("second", "Topic:Copied"),
            *re.findall(r"User:(first) +Custom +(\S+)", listed),
        ]
        assert "success" in printed("deleteAcl -b {b} -s User:first")
        assert rules("{b}", "first") == []
        assert "User:first has no permission to access Topic:Copied" in (sends(guarded, "first") or "")
        assert "success" in printed("deleteUser -b {b} -u second")
        assert "second" not in printed("listUser -b {b}")
        assert printed("copyUser -f {o} -t {b}").count("success") >= 3  # all, with those that are there
        assert printed("copyAcl -f {o} -t {b}").count("success") == 2
        assert rules("{b}", "first") == before
        assert (sends(guarded, "first"), sends(guarded, "second")) == (None, None)
        for user in ("first", "second"):
            assert "success" in printed(f"deleteUser -b {{b}} -u {user}")
        assert "User:first" not in printed("listAcl -b {b}")
        text = printed("createAcl -b {b} -s User:first -r Topic:Copied -a Pub -d Allow")
        assert "not found" in text or "not exist" in text, text
        other.stop()


PLAIN_ACL = """\
accounts:
  - accessKey: orders-app
    secretKey: orders-secret
    defaultTopicPerm: DENY
    defaultGroupPerm: DENY
    topicPerms:
      - Plain=PUB|SUB
      - ReadOnly=SUB
    groupPerms:
      - plain-group=SUB
  - accessKey: orders-admin
    secretKey: admin-secret
    admin: true
    defaultTopicPerm: PUB|SUB
    defaultGroupPerm: SUB
"""


@contextmanager
def plain_broker(request: pytest.FixtureRequest, store: Path, text: str) -> Iterator[tuple[Peer, Path]]:
    """A broker with this `plain_acl.yml`, and the file: ours, or with `--against apache` Apache's 4.9."""
    need(lambda: java_class_path("client4"))
    if request.config.getoption("--against", "firearrow") == "apache":
        need(lambda: java_class_path("broker4"))
        path = store.parent / f"{store.name}-apache" / "conf" / "plain_acl.yml"
        path.parent.mkdir(parents=True)
        path.write_text(text)
        with Apache4(store, {"aclEnable": "true"}) as apache:
            yield apache, path
    else:
        path = store.parent / "plain_acl.yml"
        path.write_text(text)
        with FireArrow(store, {"aclEnable": "true", "rocketmq.acl.plain.file": str(path)}) as ours:
            yield ours, path


@pytest.fixture(scope="module")
def plain(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    with plain_broker(request, tmp_path_factory.mktemp("plain") / "store", PLAIN_ACL) as (peer, _):
        yield peer


@pytest.mark.parametrize("name", ["java4", pytest.param("go", marks=pytest.mark.long)])
def test_accounts_of_brokers_4(plain: Peer, drivers: Drivers, tmp_path: Path, name: str) -> None:
    with SignedSocket(address(plain.address), "orders-admin", "admin-secret") as admin:
        for topic in ("Plain", "ReadOnly"):
            ask_ok(admin, RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(topic))
        ask_ok(admin, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, {"groupName": "plain-group"})
    with SignedSocket(address(plain.address), "orders-app", "orders-secret") as app:
        for topic, wanted in (("ReadOnly", "No default permission for topic:ReadOnly"), ("Plain", None)):
            answer = app.ask(RequestCode.SEND_MESSAGE_V2, send_ext(topic), b"x")
            assert (answer.code == 0) == (wanted is None), answer.remark
            assert wanted is None or f"AclException: {wanted}" in (answer.remark or "")
        answer = app.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext("More"))
        assert answer.code == 1
        assert "AclException: Need admin permission for request code=17, but accessKey=orders-app" in (
            answer.remark or ""
        )
        app.password = "wrong"
        answer = app.ask(RequestCode.SEND_MESSAGE_V2, send_ext("Plain"), b"x")
        assert "AclException: Check signature failed for accessKey=orders-app" in (answer.remark or "")
        app.user = "stranger"
        answer = app.ask(RequestCode.SEND_MESSAGE_V2, send_ext("Plain"), b"x")
        assert "AclException: No acl config for stranger" in (answer.remark or "")
    with clients(plain, drivers, tmp_path) as make:
        client, signed = make(name, ("orders-app", "orders-secret"))
        member, bodies = f"plain-{name}", hexed(f"{name} one", f"{name} two")
        client.ask("send", group=member, topic="Plain", body=bodies, **signed)
        client.ask("consume", name=member, group="plain-group", topic="Plain", **signed)
        client.await_bodies([member], bodies)
        client.ask("stop", name=member)
        with pytest.raises(Failed):
            client.ask("send", group=member, topic="ReadOnly", body=bodies, **signed)


def test_mqadmin_4_administers_accounts(plain: Peer, drivers: Drivers) -> None:
    """mqadmin 4.9.8 has its keys from a file in its home."""
    client, broker = drivers("java4"), ("-b", plain.address)
    conf = client.log.parent / "conf"
    conf.mkdir(exist_ok=True)
    (conf / "logback_tools.xml").write_text("<configuration/>")
    (conf / "tools.yml").write_text("accessKey: orders-admin\nsecretKey: admin-secret\n")

    def printed(*arguments: str) -> str:
        [output] = client.ask("mqadmin", argument=arguments, nameServer=plain.name_server)
        return str(output["text"])

    def version() -> tuple[str, int]:
        """The file, and how often it was changed."""
        text = printed("clusterAclConfigVersion", *broker)
        found = re.search(r"(\S+/plain_acl\.yml) +(\d+) ", text)
        assert found, text
        return found[1], int(found[2])

    def sent(topic: str) -> str | None:
        with SignedSocket(address(plain.address), "newcomer", "newcomer-secret") as new:
            return new.ask(RequestCode.SEND_MESSAGE_V2, send_ext(topic), b"x").remark

    with SignedSocket(address(plain.address), "orders-admin", "admin-secret") as admin:
        ask_ok(admin, RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext("Plain"))
    file, before = version()
    account = ("-a", "newcomer", "-s", "newcomer-secret", "-i", "DENY", "-u", "DENY")
    text = printed("updateAclConfig", *broker, *account, "-t", "Plain=PUB,Other=SUB")
    assert "create or update plain access config to" in text
    assert sent("Plain") is None
    assert "No default permission for topic:Other" in (sent("Other") or "")
    text = printed("updateAclConfig", *broker, *account, "-t", "Plain=WRITE")
    assert re.search(r"CODE: 209 .*Parse resource permission error for Plain=WRITE", text), text
    text = printed("updateAclConfig", *broker, "-a", "newcomer", "-s", "short")
    assert re.search(r"CODE: 209 .*cannot be null and length should longer than 6", text), text
    text = printed("updateGlobalWhiteAddr", *broker, "-g", "10.10.103.*", "-p", file)
    assert "update global white remote addresses to" in text
    assert version() == (file, before + 2)
    written = Path(file).read_text()
    assert "10.10.103.*" in written
    assert written.count("accessKey: ") == PLAIN_ACL.count("accessKey: ") + 1
    text = printed("deleteAclConfig", *broker, "-a", "newcomer")
    assert "delete plain access config account from" in text, text
    assert "No acl config for newcomer" in (sent("Plain") or "")
    text = printed("deleteAclConfig", *broker, "-a", "newcomer")
    assert "CODE: 210 " in text, text
