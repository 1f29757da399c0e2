"""Options and Config: an Apache broker.conf is accepted; errors are named; some options change at run time."""

import logging
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firearrow.broker.base import auth_options, properties, tls
from firearrow.broker.base.config import Config, ConfigError, apply, configured, from_file, judge
from firearrow.broker.base.config_keys import apache_defaults, apache_keys
from firearrow.broker.base.options import Options, options_by_key

OURS = {
    "consoleContext",
    "consoleIdleTimeout",
    "consoleListen",
    "consoleMaskBodies",
    "consoleReadOnly",
    "haAllowedAddresses",
    "haSecret",
    "proxyProtocolTrustedAddresses",
    "grpcMaxInboundMessageSize",
    "grpcServerPort",
    "grpcSignatureMaxAgeSec",
    "maxTopicNums",
    "readUnconfirmedMessages",
    "maxTopicQueueNums",
    "maxFilterCacheChars",
    "maxHalfMessagesWaiting",
    "maxHeldPulls",
    "maxConnectionBytes",
    "maxReplyBytesWaiting",
    "com.rocketmq.remoting.frameMaxLength",
    "advertisedPort",
    "fastPath",
    "fastSockets",
    "rocketmq.acl.plain.file",
    "authAuditLog",
    "metricsIdleGroups",
}


def test_our_keys_are_apaches_with_few_named_exceptions() -> None:
    assert set(options_by_key()) - apache_keys() - set(tls.KEYS) == OURS


def test_defaults_are_apaches() -> None:
    pairs = Config(Options(broker_name="b")).properties()
    assert (pairs["flushDiskType"], pairs["mappedFileSizeCommitLog"], pairs["defaultTopicQueueNums"]) == (
        "ASYNC_FLUSH",
        "1073741824",
        "8",
    )
    assert (pairs["autoCreateTopicEnable"], pairs["maxMessageSize"]) == ("true", "4194304")


def test_an_apache_file_is_accepted_as_it_is(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "broker.conf"
    path.write_text(
        "# comment\nbrokerClusterName = DefaultCluster\nbrokerName=broker-a\nbrokerId=0\ndeleteWhen=04\n"
        "fileReservedTime=48\nhaListenPort=10912\nbrokerRole=ASYNC_MASTER\nflushDiskType=SYNC_FLUSH\nnoSuchKey=1\n"
    )
    with caplog.at_level(logging.INFO):
        options = from_file(Options(), path)
    assert (options.broker_name, options.sync_flush) == ("broker-a", True)
    assert "these keys have no effect here" not in caplog.text
    assert (options.reserved_hours, options.delete_hours) == (48, {4})
    assert "unknown key noSuchKey" in caplog.text


@pytest.mark.parametrize(
    ("key", "value", "fault"),
    [
        ("brokerId", "-1", "brokerId must be 0 to 2147483647, not -1"),
        ("brokerRole", "MASTER", "brokerRole must be ASYNC_MASTER or SYNC_MASTER or SLAVE"),
        ("listenPort", "x", "listenPort must be a whole number"),
        ("listenPort", "65536", "listenPort must be 0 to 65535"),
        ("traceOn", "yes", "traceOn must be true or false"),
        ("flushDiskType", "SYNC", "flushDiskType must be ASYNC_FLUSH or SYNC_FLUSH"),
        ("nonsense", "1", "nonsense is not an option"),
    ],
)
def test_a_bad_value_is_named(key: str, value: str, fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        apply(Options(), {key: value})


def test_a_slave_needs_an_id_above_0(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("brokerRole=SLAVE\n")
    with pytest.raises(ConfigError, match="brokerId above 0"):
        from_file(Options(), path)
    path.write_text("brokerRole=SLAVE\nbrokerId=2\n")
    assert from_file(Options(), path).is_slave


def test_changes_at_run_time_are_all_or_none_and_saved(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("brokerName=b\n")
    config = Config(Options(), path)
    notified: list[int] = []
    config.listen(lambda options: notified.append(options.flush_interval_ms))
    with pytest.raises(ConfigError, match="storePathRootDir cannot change while the broker runs"):
        config.update({"flushIntervalCommitLog": "400", "storePathRootDir": "/elsewhere"})
    assert config.options.flush_interval_ms == 500
    config.update({"flushIntervalCommitLog": "400"})
    assert (config.options.flush_interval_ms, notified) == (400, [500, 400])
    assert properties.parse(path.read_text()) == {"brokerName": "b", "flushIntervalCommitLog": "400"}


@pytest.mark.parametrize("mode", [0o600, 0o644])
def test_a_file_that_is_rewritten_keeps_its_permissions(tmp_path: Path, mode: int) -> None:
    """It may hold secrets."""
    path, link = tmp_path / "broker.conf", tmp_path / "link.conf"
    path.write_text("haSecret=0123456789abcdef\n")
    path.chmod(mode)
    link.symlink_to(path)
    Config(Options(), link).update({"flushIntervalCommitLog": "400"})
    assert "flushIntervalCommitLog=400" in path.read_text()
    assert path.stat().st_mode & 0o777 == mode
    assert sorted(tmp_path.iterdir()) == [path, link]


@pytest.mark.parametrize(
    "key",
    [
        "brokerName",
        "listenPort",
        "brokerIP1",
        "advertisedPort",
        "namesrvAddr",
        "storePathCommitLog",
        "flushDiskType",
    ],
)
def test_identity_ports_and_paths_do_not_change_at_run_time(key: str) -> None:
    with pytest.raises(ConfigError, match=f"{key} cannot change"):
        Config(Options()).update({key: "1"})


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("a=1\n#x\n!y\n\n b : c=d \n", {"a": "1", "b": "c=d"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=x\\\ny", {"a": "xy"}),
        ("a=", {"a": ""}),
    ],
)
def test_properties_text(text: str, pairs: dict[str, str]) -> None:
    assert properties.parse(text) == pairs


def test_malformed_properties_text() -> None:
    with pytest.raises(ValueError, match="at most 1048576"):
        properties.parse("a" * (1 << 20) + "=")


def refused_at_start(path: Path, key: str, value: str, fault: str) -> None:
    """In the file, which is written, and as an argument."""
    path.write_text(f"{key}={value}\n")
    with pytest.raises(ConfigError, match=fault):
        from_file(Options(), path)
    with pytest.raises(ConfigError, match=fault):
        configured(Options(), None, {key: value})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("aclEnabled", "TRUE"),
        ("aclenable", "true"),
        ("authenticationEnable", "true"),
        ("tlsTestModeEnabled", "true"),
        ("tlsKeyPath", "/etc/key.pem"),
        ("sslCertificate", "/etc/cert.pem"),
        ("requireLogin", "true"),
        ("require.login", "1"),
        ("anonymousAccess", "denied"),
        ("allowAnonymous", "never"),
        ("loginOptional", "false"),
        ("bypassAuth", "false"),
        ("publicAccess", "false"),
        ("accessPolicy", "/etc/rules"),
        ("allowedIps", "10.0.0.1"),
        ("localOnly", "true"),
        ("apiKeys", "/etc/keys"),
        ("signRequests", "true"),
        ("privateKey", "/etc/key.pem"),
        ("rootCA", "/etc/ca.pem"),
        ("hostnameVerification", "true"),
        ("REQUIRE_LOGIN", "yes"),
        ("requirelogin", "on"),
        ("enableSSL", "true"),
        ("enablessl", "true"),
        ("mutualTls", "true"),
        ("useHttps", "true"),
        ("allowAnonymous", "false"),
        ("allow.everyone.if.no.acl.found", "false"),
        ("disableAuth", "false"),
        ("denyAnonymous", "true"),
        ("super.users", "User:admin"),
        ("security.protocol", "SASL_SSL"),
        ("adminPassword", "word"),
        ("ipWhitelist", "10.0.0.1"),
        ("permissionsEnabled", "true"),
        ("protected-mode", "yes"),
        ("keyStorePath", "/etc/keys"),
        ("encryptMessages", "true"),
        ("privateMode", "true"),
        ("safeMode", "true"),
        ("policyFile", "/etc/policy"),
        ("pam", "true"),
        ("lockoutSeconds", "600"),
    ],
)
def test_a_configuration_that_asks_for_security_is_refused(tmp_path: Path, key: str, value: str) -> None:
    asks = f"^{re.escape(key)} asks for (access control|authentication|TLS), "
    refused_at_start(tmp_path / "broker.conf", key, value, asks)
    with pytest.raises(ConfigError, match=asks) as refused:
        Config(Options()).update({key: value})
    assert str(refused.value).rpartition("write ")[2].partition(",")[0] in options_by_key()


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("haSecert", "haSecret"),
        ("hasecret", "haSecret"),
        ("ha.allowed.addresses", "haAllowedAddresses"),
        ("initAuthUser", "initAuthenticationUser"),
        ("initialAuthenticationUser", "initAuthenticationUser"),
        ("innerClientAuthenticationCredential", "innerClientAuthenticationCredentials"),
        ("authEnabled", "authenticationEnabled"),
        ("enableAuth", "authenticationEnabled"),
        ("authorisationEnabled", "authorizationEnabled"),
        ("authenticationWhiteList", "authenticationWhitelist"),
        ("enableAcl", "aclEnable"),
        ("rocketmq.acl.plain.flie", "rocketmq.acl.plain.file"),
        ("tsl.server.mode", "tls.server.mode"),
        ("authAuditlog", "authAuditLog"),
        ("configBlacklist", "configBlackList"),
    ],
)
def test_a_misspelt_key_that_asks_for_security_is_refused(tmp_path: Path, key: str, meant: str) -> None:
    path = tmp_path / "broker.conf"
    refused_at_start(path, key, "true", f"^{re.escape(key)} asks for .*: write {re.escape(meant)}$")
    assert [each.fatal for each in judge(Options(), path, {}).complaints] == [True]  # named once


@pytest.mark.parametrize(
    "key",
    [
        "haServer",
        "enableTrace",
        "oracle",
        "authorName",
        "logInterval",
        "accessMessageInMemoryRatio",
        "brokerPermissions",
        "userHome",
        "messageUsers",
        "tokenBucketSize",
        "cacheKeyPath",
    ],
)
def test_other_unknown_keys_are_warnings(key: str, tmp_path: Path) -> None:
    """So are every key of Apache's, and a misspelt one that is switched off."""
    path = tmp_path / "broker.conf"
    lines = [f"{each}={text}" for each, text in apache_defaults().items() if text]
    path.write_text("\n".join([*lines, f"{key}=true", "haSecert=", "aclEnabled=false"]))
    complaints = judge(Options(), path, {}).complaints
    assert not [each for each in complaints if each.fatal]
    texts = "\n".join(each.text for each in complaints)
    assert f"unknown key {key}" in texts
    assert "unknown key haSecert (did you mean haSecret?)" in texts


@pytest.mark.parametrize(
    "text",
    [
        "aclEnable=false",
        "authenticationEnabled=false\ninitAuthenticationUser={}",
        "authenticationEnabled=false\nauthAuditLog=/a\nauthorizationWhitelist=10\nauthenticationWhitelist=10",
        "aclEnable=false\nrocketmq.acl.plain.file=/a",
        "requireLogin=false\nallowAnonymous=true\nenableSSL=no\nanonymousAccess=allowed\nbypassAuth=true",
        "tls.enable=false\ntls.server.mode=disabled\ntls.test.mode.enable=true\ntls.server.keyPath=/k",
        "useTLS=false\ntls.server.need.client.auth=none\ntls.client.authServer=false\ntls.server.certPath=",
    ],
)
def test_security_that_is_switched_off_is_fine(
    tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "broker.conf"
    path.write_text(text)
    from_file(Options(), path)
    if "requireLogin" not in text:
        assert "unknown" not in caplog.text
        configured(Options(), None, properties.parse(text))


USER, KEYS = '{"username":"a","password":"b"}', '{"accessKey":"a","secretKey":"b"}'
OF_APACHE = "org.apache.rocketmq.auth.authentication."


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (
            "aclEnabled=TRUE",
            "aclEnabled asks for access control, but is not a key of this server: write aclEnable",
        ),
        (
            "aclenable=true",
            "aclenable asks for access control, but is not a key of this server: write aclEnable",
        ),
        ("authenticationEnable=true", "write authenticationEnabled"),
        (
            "enableACL=true",
            "enableACL asks for access control, but is not a key of this server: write aclEnable",
        ),
        ("aclEnable=true", "aclEnable=true needs the path of plain_acl.yml in rocketmq.acl.plain.file"),
        ("authorizationEnabled=true", "authorizationEnabled=true needs authenticationEnabled=true"),
        ("migrateAuthFromV1Enabled=true", "migrateAuthFromV1Enabled=true needs authenticationEnabled=true"),
        (f"initAuthenticationUser={USER}", "initAuthenticationUser needs authenticationEnabled=true"),
        (f"innerClientAuthenticationCredentials={KEYS}", "Credentials needs authenticationEnabled=true"),
        ("authenticationEnabled=true\ninitAuthenticationUser={}", "initAuthenticationUser must be {"),
        (f"authenticationEnabled=true\ninitAuthenticationUser={KEYS}", "initAuthenticationUser must be {"),
        ("authenticationEnabled=true\ninitAuthenticationUser=a", "initAuthenticationUser must be {"),
        (
            "authenticationEnabled=true\nauthenticationWhitelist=a,b",
            "authenticationWhitelist must be request",
        ),
        (
            "authenticationEnabled=true\nauthorizationEnabled=true\nauthorizationWhitelist=-1",
            "authorizationWhitelist must be request",
        ),
        ("authenticationWhitelist=10", "authenticationWhitelist needs authenticationEnabled=true"),
        (f"aclEnable=false\ninitAuthenticationUser={USER}", "initAuthenticationUser needs"),
        ("aclEnable=false\nauthAuditLog=/a", "authAuditLog needs authenticationEnabled=true"),
        ("authorizationEnabled=false\nauthenticationWhitelist=10", "authenticationWhitelist needs"),
        (
            "authenticationEnabled=false\nrocketmq.acl.plain.file=/a",
            "rocketmq.acl.plain.file needs aclEnable",
        ),
        ("authorizationWhitelist=10", "authorizationWhitelist needs authorizationEnabled=true"),
        (
            "authenticationEnabled=true\nauthorizationWhitelist=10",
            "authorizationWhitelist needs authorizationEnabled=true: without it each user may do everything",
        ),
        ("authAuditLog=/tmp/audit", "authAuditLog needs authenticationEnabled=true, or aclEnable=true"),
        ("rocketmq.acl.plain.file=/etc/plain_acl.yml", "rocketmq.acl.plain.file needs aclEnable=true"),
        (f"authenticationStrategy={OF_APACHE}strategy.Stateless", "authenticationStrategy needs"),
        ("haSecret=fifteen bytes..", "haSecret has 15 bytes, at least 16 are needed"),
        ("haSecret=abc", "haSecret has 3 bytes"),
        (
            "authenticationEnabled=true\nauthenticationProvider=com.example.Own",
            "this broker runs no other class",
        ),
        ("authenticationEnabled=true\nauthenticationStrategy=Stateful", "this broker runs no other class"),
        ("authenticationEnabled=true\naclEnable=true\nrocketmq.acl.plain.file=/a", "exclude each other"),
        ("authenticationEnabled=yes", "authenticationEnabled must be true or false"),
    ],
)
def test_protection_that_cannot_take_effect_is_refused(
    tmp_path: Path, text: str, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ROCKETMQ_HOME", raising=False)
    path = tmp_path / "broker.conf"
    path.write_text(text)
    with pytest.raises(ConfigError, match=re.escape(fault)):
        from_file(Options(), path)
    with pytest.raises(ConfigError, match=re.escape(fault)):
        configured(Options(), None, properties.parse(text))


def test_protection_is_configured_as_in_apaches_broker(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text(
        f"authenticationEnabled=true\nauthenticationProvider={OF_APACHE}provider.DefaultAuthenticationProvider\n"
        f"authenticationStrategy={OF_APACHE}strategy.StatefulAuthenticationStrategy\n"
        f"authenticationMetadataProvider={OF_APACHE}provider.LocalAuthenticationMetadataProvider\n"
        f"initAuthenticationUser={USER}\ninnerClientAuthenticationCredentials={KEYS}\n"
        "authorizationEnabled=true\nauthenticationWhitelist=105, 34,apache.rocketmq.v2.HeartbeatRequest\n"
    )
    options = from_file(Options(), path)
    assert options.authentication
    assert options.authorization
    assert auth_options.initial_user(options) == ("a", "b") == auth_options.inner_credentials(options)
    assert auth_options.codes("authenticationWhitelist", options.authentication_whitelist) == {105, 34}
    assert auth_options.stateful_s(options) == 60


def test_secrets_are_not_shown(tmp_path: Path) -> None:
    text = f"authenticationEnabled=true\ninitAuthenticationUser={USER}"
    options = configured(Options(), None, properties.parse(text))
    shown = Config(options).properties()
    assert shown["initAuthenticationUser"] == "(hidden)"
    assert shown["innerClientAuthenticationCredentials"] == ""
    assert USER not in str(shown)


@pytest.mark.parametrize("key", ["authenticationEnabled", "aclEnable", "initAuthenticationUser"])
def test_protection_does_not_change_while_the_broker_runs(key: str) -> None:
    with pytest.raises(ConfigError, match="cannot change while the broker runs"):
        Config(Options()).update({key: "true"})


def test_an_override_can_switch_security_off(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("authorizationEnabled=true\n")
    configured(Options(), path, {"authorizationEnabled": "false"})


@pytest.mark.parametrize("by_set", [False, True])
def test_keys_without_effect_are_named_if_they_differ(
    tmp_path: Path, by_set: bool, caplog: pytest.LogCaptureFixture
) -> None:
    text = "warmMapedFileEnable=true\ntransientStorePoolEnable=False\nosPageCacheBusyTimeOutMills=01000\n"
    text += "aclCacheMaxNum=5\n"
    path = tmp_path / "broker.conf"
    path.write_text(text)
    with caplog.at_level(logging.INFO):
        configured(Options(), None if by_set else path, properties.parse(text) if by_set else {})
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warnings == [
        "aclCacheMaxNum has no effect here (Apache's default: 1000)",
        "warmMapedFileEnable has no effect here (Apache's default: false)",
    ]
    assert "osPageCacheBusyTimeOutMills, transientStorePoolEnable\n" in caplog.text


def test_unknown_keys_name_the_similar_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("flushdisktype=SYNC_FLUSH\nqwertzuiop=1\n")
    from_file(Options(), path)
    assert "unknown key flushdisktype (did you mean flushDiskType?)\n" in caplog.text
    assert "unknown key qwertzuiop\n" in caplog.text
    for refused in (configured, apply):
        arguments = (Options(), None) if refused is configured else (Options(),)
        with pytest.raises(ConfigError, match=r"fileReserveTime \(did you mean fileReservedTime\?\) is not"):
            refused(*arguments, {"fileReserveTime": "48"})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("diskMaxUsedSpaceRatio", "150"),
        ("diskSpaceCleanForciblyRatio", "101"),
        ("diskSpaceWarningLevelRatio", "-1"),
        ("flushIntervalCommitLog", str(1 << 31)),
        ("fileReservedTime", "1e3"),
        ("maxIndexNum", "٣"),
        ("transactionTimeOut", "9" * 30),
        ("brokerName", ""),
        ("storePathRootDir", ""),
    ],
)
def test_values_out_of_range_are_refused_at_start_and_at_run_time(key: str, value: str) -> None:
    with pytest.raises(ConfigError, match=key):
        apply(Options(), {key: value})
    if options_by_key()[key].metadata["change"] == "running":
        config = Config(Options())
        before = config.options
        with pytest.raises(ConfigError, match=key):
            config.update({key: value})
        assert config.options is before


def test_a_value_in_force_may_be_set_again_at_run_time() -> None:
    config = Config(Options())
    config.update({"listenPort": "10911", "brokerPermission": "4"})
    assert config.options.broker_permission == 4


def test_a_config_file_that_cannot_be_written_keeps_the_change(tmp_path: Path) -> None:
    config = Config(Options(), tmp_path / "gone" / "broker.conf")
    config.update({"brokerPermission": "4"})
    assert config.options.broker_permission == 4


JAVA_READS = {
    b"\xef\xbb\xbfa=1": {"a": "1"},
    b"# \xd6\xd0\xce\xc4\n! \xff\na=1": {"a": "1"},
    b"a\\ b=c\\ d": {"a b": "c d"},
    b"a b c": {"a": "b c"},
    b"a": {"a": ""},
    b"a\t=\f b": {"a": "b"},
    b"a:=b": {"a": "=b"},
    b"a\\=b\\:c=d": {"a=b:c": "d"},
    b"a=\\u0041\\ud83d\\ude00\\t\\q": {"a": "A\U0001f600\tq"},
    b"a=1\\\r\n  2\\\r  3\\\n#4": {"a": "123#4"},
    b"a=1\\\\\nb=2": {"a": "1\\", "b": "2"},
    b"a=1\\\n\nb=2": {"a": "1", "b": "2"},
    b"# comment \\\na=1": {"a": "1"},
    b"a=1\\": {"a": "1"},
    b"a=host\\:9876  ": {"a": "host:9876"},
    b"=x": {"": "x"},
    b"\\\n\na=1": {"a": "1"},
}


@pytest.mark.parametrize("text", JAVA_READS)
def test_properties_are_read_as_java_reads_them(text: bytes) -> None:
    assert properties.parse(text) == JAVA_READS[text]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (b"a=\xc3\xa4", "line 1 has characters beyond ASCII: write them as \\\\uXXXX"),
        (b"\n\xe4=1", "line 2 has characters beyond ASCII"),
        (b"a=\\u12", "four hexadecimal digits"),
        (b"a=\\u 123", "four hexadecimal digits"),
        (b"a=\\ud800x", "surrogate"),
        (b"\xff\xfea\0=\x001\0", "UTF-16"),
        (b"a=\0", "NUL"),
        (b"a=\\u0000", "NUL"),
    ],
)
def test_properties_that_java_would_misread_are_refused(text: bytes, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        properties.parse(text)


@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")).map(str.strip),
        max_size=4,
    )
)
def test_properties_that_are_written_are_read(pairs: dict[str, str]) -> None:
    assert properties.parse(properties.format(pairs)) == pairs
    assert properties.parse(properties.format(pairs).encode("ascii")) == pairs
