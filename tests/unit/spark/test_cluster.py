"""A cluster from options: every setting, every refusal, and that secrets are not shown."""

import pickle
from pathlib import Path

import pytest

from firearrow.client.base.options import Credentials, SocksProxy, TlsOptions
from firearrow.spark_tools.base.errors import InvalidOption
from firearrow.spark_tools.live.broker_source import BrokerSource
from firearrow.spark_tools.live.cluster import SETTINGS, Cluster

SERVER = {"nameServer": "a:1;b:2"}
SECRETS = {"rocketmq.accessKey": "AK", "rocketmq.secretKey": "hidden", "rocketmq.securityToken": "token"}


def test_every_option_reaches_the_client() -> None:
    options = Cluster.of(
        SERVER
        | SECRETS
        | {
            "rocketmq.namespace": "N",
            "rocketmq.unitName": "u",
            "rocketmq.clientIP": "10.0.0.1",
            "rocketmq.vipChannelEnabled": "true",
            "rocketmq.serializeType": "ROCKETMQ",
            "rocketmq.mqClientApiTimeout": "1500",
            "rocketmq.connectTimeout": "250",
            "rocketmq.socksProxyConfig": '{"10.0.0.0/8": {"addr": "proxy:1080", "username": "me", "password": "it"}}',
            "path": "/not/ours",
            "includeProperties": "true",
        }
    ).options()
    assert options.name_server == "a:1;b:2"
    assert options.credentials == Credentials("AK", "hidden", "token")
    assert (options.namespace, options.unit_name, options.client_ip) == ("N", "u", "10.0.0.1")
    assert (options.vip_channel, options.binary_headers, options.tls) == (True, True, False)
    assert (options.api_timeout_s, options.connect_timeout_s) == (1.5, 0.25)
    assert options.socks_proxies == {"10.0.0.0/8": SocksProxy("proxy:1080", "me", "it")}
    assert Cluster.of(SERVER | {"rocketmq.namespaceV2": "V"}).options().namespace_v2 == "V"


def test_letter_case_does_not_matter() -> None:
    lowered = {
        name.lower(): value for name, value in (SERVER | SECRETS | {"rocketmq.useTLS": "TRUE"}).items()
    }
    assert Cluster.of(lowered) == Cluster.of(SERVER | SECRETS | {"rocketmq.useTLS": "true"})


def test_two_clients_of_a_target_are_not_one() -> None:
    target = Cluster.of(SERVER)
    assert target.options().generated_name != target.options().generated_name


def test_tls_is_checked_unless_configured_otherwise() -> None:
    checked = Cluster.of(SERVER | {"rocketmq.useTLS": "true"}).options().tls
    assert isinstance(checked, TlsOptions)
    assert checked.verify
    unchecked = Cluster.of(
        SERVER | {"rocketmq.useTLS": "true", "rocketmq.tls.client.authServer": "false"}
    ).options()
    assert isinstance(unchecked.tls, TlsOptions)
    assert not unchecked.tls.verify


def test_targets_and_origins_travel_and_show_no_secret() -> None:
    target = Cluster.of(SERVER | SECRETS | {"rocketmq.tls.client.keyPassword": "hidden too"})
    message_source = BrokerSource(target, "group", timeout_s=7)
    assert pickle.loads(pickle.dumps(message_source)) == message_source
    assert "hidden" not in repr(message_source)
    assert "token" not in repr(message_source).replace("security_token", "")
    assert str(message_source) == "a:1;b:2"


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"nameServer": " "}, "nameServer: `host:port`"),
        ({"nameServer": ";"}, "nameServer: `host:port`"),
        ({"nameServer": "a:1;b"}, "nameServer: an address must be `host:port`, not 'b'"),
        ({"rocketmq.accesKey": "x"}, r"rocketmq\.acceskey: unknown option; the known ones are rocketmq\.accessKey, "),
        ({"rocketmq.accessKey": "x"}, r"accessKey and rocketmq\.secretKey: set both"),
        ({"rocketmq.secretKey": "x"}, "set both or neither"),
        ({"rocketmq.namespace": ""}, r"rocketmq\.namespace: is empty; set a value or remove"),
        ({"rocketmq.useTLS": "yes"}, r"rocketmq\.useTLS: expected true or false, not 'yes'"),
        ({"rocketmq.connectTimeout": "0"}, "1 to 600000, not '0'"),
        ({"rocketmq.connectTimeout": "600001"}, "not '600001'"),
        ({"rocketmq.connectTimeout": "1s"}, "expected milliseconds"),
        ({"rocketmq.connectTimeout": "9" * 5000}, "expected milliseconds"),
        ({"rocketmq.serializeType": "XML"}, "expected JSON or ROCKETMQ"),
        ({"rocketmq.socksProxyConfig": "proxy:1080"}, "socksProxyConfig: expected JSON such as"),
        ({"rocketmq.socksProxyConfig": '{"*": {"addr": "proxy"}}'}, "socksProxyConfig: expected JSON such as"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(more: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidOption, match=says):
        Cluster.of(SERVER | more)


def test_the_longest_time_is_taken() -> None:
    assert Cluster.of(SERVER | {"rocketmq.connectTimeout": "600000"}).options().connect_timeout_s == 600


@pytest.mark.parametrize("name", ["trustCertPath", "certPath"])
def test_a_file_that_is_missing_is_named(name: str, tmp_path: Path) -> None:
    missing = str(tmp_path / "missing.pem")
    with pytest.raises(InvalidOption, match=r"cannot be used on this machine: .*No such file"):
        Cluster.of(SERVER | {"rocketmq.useTLS": "true", f"rocketmq.tls.client.{name}": missing})


def test_a_group_s_name_is_checked() -> None:
    target = Cluster.of(SERVER)
    with pytest.raises(InvalidOption, match="group: group 'no name': only a to z"):
        BrokerSource(target, "no name").open()


def test_every_setting_is_a_separate_field() -> None:
    assert len({field for _, field, _ in SETTINGS}) == len(SETTINGS)
    assert {field for _, field, _ in SETTINGS} <= set(Cluster.__dataclass_fields__)
