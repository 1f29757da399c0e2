"""Which unknown keys ask for security: a table, and all properties of Apache's configuration classes.

`apache_properties.txt` has the fields of Apache's classes of 4.9.7 and 5.5.0, one class a line.
"""

from pathlib import Path

import pytest

from firearrow.broker.base import auth_options, tls
from firearrow.broker.base.config_keys import apache_keys, security_faults
from firearrow.broker.base.options import options_by_key
from firearrow.broker.base.security_words import asked, words_of
from firearrow.broker.tables.naming_options import ACTING

BROKER, NAME_SERVER = frozenset(options_by_key()), frozenset(ACTING)
ASK = """
    privateMode private.mode PRIVATE_MODE privatemode private_network safeMode safe-mode safemode
    pam pamService enablePam
    policyFile policy.file policyPath policies lockoutSeconds lockOutAfter accountLockout lockoutseconds
    bruteForceProtection maxFailedAttempts banAfterFailures bannedIps jaasConfig keytabFile otpRequired 2faEnabled
    allowedNetworks allow.cidr permittedHosts approvedClients ipAllowList internalOnly adminOnly adminUsers admins
    usersFile userDatabase requireUser userPassword tokenFile tokenRequired roleFile topicAccess accessRules
    clientKeyFile privateKeyPath secretKey accessKey signMessages protectTopics ssl_ca_file crlPath ocspStapling
    blockedIps blockedIp ipFilters ipFilter ipBlock blockHosts hostsAllowed rejectUnknownClients rejectunknown
    rejectUntrusted rejectUnsigned refuseUnsigned onlyKnownClients onlyKnownHosts validateClients validateClient
    clientVerification verifyPeers identityCheck identities requireKey keyRequired preSharedKey presharedkeys psk
    pskFile twoFactor multiFactor requireAccount accounts cryptoEnable decryptionKey noGuests noGuest policy
    rejectNoPassword rejectEmptyPassword noEmptyPasswords rejectguests rejectanonymous denyunsigned usetls requiressl
    enableacl mTLS MTLS_PORT useSSLv3 requiredtls listenerssl publicKey
"""
ASK_SWITCHED_OFF = """
    allowGuests allowGuest guestsAllowed allowNoPassword emptyPassword allowEmptyPasswords permitAll permitall allowAny
    trustAll publicRead publicread public allowUnsigned allowUntrusted allowUnknownClients loginWithoutPassword
    allow.everyone.if.no.acl.found allowguests allowunsigned noauth noAuth
    unknownClientsAllowed
"""
KAFKA = """
    sasl.enabled.mechanisms sasl.jaas.config sasl.mechanism.inter.broker.protocol listener.security.protocol.map
    security.inter.broker.protocol authorizer.class.name super.users ssl.keystore.location ssl.client.auth
    delegation.token.master.key principal.builder.class password.encoder.secret
"""
REDIS = """
    requirepass masterauth masteruser protected-mode aclfile tls-port tls-cert-file tls-auth-clients user
    acl-pubsub-default
"""
DO_NOT_ASK = """
    userHome user.home user.dir user.timezone userProperties maxUserPropertySize userDefinedProperties messageUsers
    tokenBucketSize tokenBucketRefillMs tokenRate tokensPerSecond cacheKeyPath indexKeyPath partitionKeyFile
    adminPort adminThreads brokerRoleName haRole nodeRole accessTime randomAccessFile memoryAccessPattern
    overloadProtection heapProtection retentionPolicy cleanupPolicy retentionPolicyFile privateIp privateAddress
    threadSafe messageIndexSafe failSafe signExtension unsigned assignStrategy design signalHandler author
    oracle loginfo logIndexEnable bypassCache banner bandwidth spam pamphlet islands lockTimeout lockOutputFile
    userTopicCount userGroup userGroups lastAccess enableAccessLog accessLogs retentionPolicies compactionPolicies
    topicPolicy roleName roleNames maxTokens cancelToken fastFailProtect messageSignTime settls SETTLS_MS throttlsMs
    daclX DACL httpPort rejectUnknownFields requireMessageKey publicHost
"""
KAFKA_OTHERS = """
    process.roles log.cleanup.policy create.topic.policy.class.name num.network.threads message.max.bytes log.dirs
    broker.id listeners advertised.listeners auto.create.topics.enable offsets.topic.num.partitions
    connections.max.idle.ms client.quota.callback.class controller.quorum.voters
"""
REDIS_OTHERS = """
    bind port timeout maxmemory appendonly save databases tcp-keepalive daemonize logfile dir replicaof maxclients
"""
"""`bind` asks for no more than what is so without it: the default address is that of loopback."""
APACHE_ASKS = {
    "authConfigPath",
    "enableAclRpcHookForClusterMode",
    "tlsCertPath",
    "tlsCertWatchIntervalMs",
    "tlsKeyPassword",
    "tlsKeyPath",
    "tlsTestModeEnable",
}
"""Keys of Apache's proxy and command lines that ask for security, which a broker has by other keys or not at all."""


def apache_properties() -> set[str]:
    lines = Path(__file__).with_name("apache_properties.txt").read_text("ascii").splitlines()
    return {name for line in lines for name in line.partition(": ")[2].split()} | apache_keys()


@pytest.mark.parametrize("key", (ASK + KAFKA + REDIS).split())
def test_a_key_that_asks_for_security(key: str) -> None:
    assert list(security_faults({key: "10"}, BROKER)) == [key]
    assert not security_faults({key: "false"}, BROKER)


@pytest.mark.parametrize("key", ASK_SWITCHED_OFF.split())
def test_a_key_that_asks_by_being_switched_off(key: str) -> None:
    assert list(security_faults({key: "false"}, BROKER)) == [key]
    assert not security_faults({key: "true"}, BROKER)


@pytest.mark.parametrize("key", (DO_NOT_ASK + KAFKA_OTHERS + REDIS_OTHERS).split())
def test_a_key_that_does_not(key: str) -> None:
    assert not security_faults({key: "10"}, BROKER)
    assert not security_faults({key: "false"}, BROKER)


def test_apaches_properties_that_ask_for_security_are_these() -> None:
    refused = {key for key in apache_properties() if security_faults({key: "10"}, BROKER)}
    assert refused == APACHE_ASKS


def test_no_other_spelling_of_apaches_properties_asks() -> None:
    """But for those that ask for security as they are written."""
    ask = {"acl", "authentication", "authorization", "auth", "tls", "black"}
    spellings = {
        spelling: key
        for key in apache_properties() - APACHE_ASKS
        for spelling in (key.lower(), ".".join(words_of(key)))
        if spelling not in BROKER and asked(spelling, "10")
    }
    refused = {spellings[spelling] for spelling in security_faults(dict.fromkeys(spellings, "10"), BROKER)}
    assert refused
    assert not {key for key in refused if not ask & {*words_of(key)}}


def test_options_of_the_broker_in_a_file_of_the_name_server() -> None:
    refused = set(security_faults(dict.fromkeys(BROKER, "10"), (), NAME_SERVER))
    secure = {
        *tls.KEYS,
        *auth_options.NAME_SERVER_KEYS,
        "haSecret",
        "haAllowedAddresses",
        "grpcSignatureMaxAgeSec",
    }
    assert refused < secure | {"migrateAuthFromV1Enabled", "useTLS", "aclEnable", "rocketmq.acl.plain.file"}
    assert {"haSecret", "aclEnable", "authenticationEnabled", "tls.server.mode"} <= refused
