"""Users and rules with the official clients and Apache's mqadmin, against us and Apache alike.

The Java client 4.9.8 signs as for the ACL of 4.x; that of `plain_acl.yml` has its own test.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from firearrow._native.wire.codes import RequestCode
from tests.auth.secured import INITIAL, ROOT, ROOT_PASSWORD, SignedSocket, ask_ok, create_user, grant
from tests.interop.driver import Driver, Failed
from tests.interop.messages import hexed
from tests.interop.peers import Apache, FireArrow, Peer, address
from tests.interop.toolchain import java_class_path, need
from tests.support.requests import topic_ext

CLIENTS = ("java5", "java4", "go")
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
Make = Callable[[str, tuple[str, str]], Driver]


@pytest.fixture(scope="module")
def guarded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    """A broker that checks users and rules: ours, or with `--against apache` Apache's."""
    need(lambda: java_class_path("client5"))
    store = tmp_path_factory.mktemp("access") / "store"
    kind = Apache if request.config.getoption("--against", "firearrow") == "apache" else FireArrow
    with kind(store, SETTINGS | {"brokerName": "broker-a"}) as peer:
        yield peer


@pytest.fixture
def make(guarded: Peer, tmp_path: Path) -> Iterator[Make]:
    with ExitStack() as stack:

        def started(name: str, keys: tuple[str, str]) -> Driver:
            home = tmp_path / f"{name}-{keys[0]}"
            return stack.enter_context(Driver(name, guarded.name_server, home, keys))

        yield started


@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_with_keys_sends_and_consumes(guarded: Peer, make: Make, name: str) -> None:
    user, topic, group = f"user-{name}", f"Access-{name}", f"access-{name}"
    with SignedSocket(address(guarded.address)) as root:
        ask_ok(root, RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(topic))
        ask_ok(root, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, {"groupName": group})
        create_user(root, user, "secret-word")
        grant(root, user, f"Topic:{topic}", "Pub", "Sub", "Get")
        grant(root, user, f"Group:{group}", "Sub", "Get")
        client = make(name, (user, "secret-word"))
        bodies = hexed("one", "two", "three")
        client.ask("send", group="P", topic=topic, body=bodies)
        client.ask("consume", name="member", group=group, topic=topic)
        client.await_bodies(["member"], bodies)
        grant(root, user, f"Topic:{topic}", "Pub", decision="Deny")
        with pytest.raises(
            Failed, match=r"the decision is deny|MQClientException 16"
        ):  # Java has the code only
            client.ask("send", group="P", topic=topic, body=bodies)


@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_with_wrong_keys_is_told_so(guarded: Peer, make: Make, name: str) -> None:
    topic = f"Wrong-{name}"
    with SignedSocket(address(guarded.address)) as root:
        ask_ok(root, RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(topic))
    client = make(name, (ROOT, "wrong"))
    wanted = "check signature failed|MQClientException 16|route|No topic|not exist"  # Go: no route
    with pytest.raises(Failed, match=wanted):
        client.ask("send", group="P", topic=topic, body=hexed("x"))


def test_mqadmin(guarded: Peer, make: Make) -> None:
    admin = make("java5", (ROOT, ROOT_PASSWORD))

    def printed(line: str) -> str:
        [output] = admin.ask("mqadmin", argument=line.format(b=guarded.address).split())
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
