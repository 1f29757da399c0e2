"""Every command of mqadmin 5.5.0 with what it must print, our broker as Apache's; where they differ, both are given.

Left out, because they never end: `clusterRT`, `startMonitoring`. Static topics come last: with one, Apache's own export
commands cannot read what Apache's broker answers.
"""

from typing import NamedTuple


class Command(NamedTuple):
    """`line` with the names of `fields` in braces, and a pattern that the output must have."""

    line: str
    prints: str
    apache: str | None = None
    """Set if Apache's output differs. docs/PROTOCOL.md gives the reason."""


NOT_SUPPORTED = r"CODE: 3 +DESC: +request type {} not supported"
NO_AUTH = r"CODE: 1 +DESC: "
"""Without auth configured, Apache's broker fails because it has no provider."""
NO_CONTROLLER = NOT_SUPPORTED.format(1005)


def missing(code: int) -> str:
    return NOT_SUPPORTED.format(code)


COMMANDS = (
    Command("clusterList", r"DefaultCluster +broker-a +0 +{b}"),
    Command("topicList -c", r"DefaultCluster +{t} +{g}"),
    Command("topicRoute -t {t}", r'"readQueueNums": ?2'),
    Command("topicStatus -t {t}", r"broker-a +0 +0 +4 +20"),
    Command("topicClusterList -t {t}", r"DefaultCluster"),
    Command("updateTopic -b {b} -t EveryShort", r"create topic to {b} success"),
    Command("updateTopicPerm -b {b} -t EveryShort -p 4", r"update topic perm from 6 to 4 in {b} success"),
    Command("deleteTopic -c DefaultCluster -t EveryShort", r"delete topic \[EveryShort\] .* success"),
    Command("updateTopicList -b {b} -f {f}/topics.json", r"submit batch of topic config to {b} success"),
    Command("updateSubGroupList -b {b} -f {f}/groups.json", r"submit batch of group config to {b} success"),
    Command("getConsumerConfig -g EveryListed", r"groupName += +EveryListed"),
    Command("setConsumeMode -b {b} -t {t} -g {g} -m PULL -q 0", r"set consume mode to {b} success"),
    Command("updateSubGroup -b {b} -g EveryShort", r"create subscription group to {b} success"),
    Command("deleteSubGroup -b {b} -g EveryShort", r"delete subscription group \[EveryShort\] .* success"),
    Command(
        "updateBrokerConfig -b {b} -k flushIntervalCommitLog -v 500", r"update broker config success, {b}"
    ),
    Command("getBrokerConfig -b {b}", r"flushIntervalCommitLog += +500"),
    Command("addBroker -c {b} -b /x.conf", missing(902)),
    Command("removeBroker -c {b} -b DefaultCluster:broker-a:0", missing(903)),
    Command("resetMasterFlushOffset -b {b} -o 0", r"reset master flush offset to 0 success"),
    Command("brokerStatus -b {b}", r"brokerVersionDesc +: +V5_5_0"),
    Command("queryMsgById -i {m} -t {t}", r"consumerGroup={g}, trackType=CONSUMED"),
    Command("queryMsgById -i {m} -t {t} -g {g} -d {c}", r"consumeResult=CR_SUCCESS"),
    Command("queryMsgByUniqueKey -i {u} -t {t} -g {g} -d {c}", r"consumeResult=CR_SUCCESS"),
    Command("queryMsgByKey -t {t} -k key-7", r"{u} +0 +0 "),
    Command("queryMsgByOffset -t {t} -b broker-a -i 0 -o 0", r"OffsetID: +{m}"),
    Command("queryMsgTraceById -i {u}", r"CODE: 208 +DESC: query message by key finished, but no message"),
    Command("printMsg -t {t}", r"minOffset=0, maxOffset=4"),
    Command("printMsgByQueue -t {t} -a broker-a -i 0 -p true", r"MSGID: {u}"),
    Command("sendMsgStatus -b broker-a -s 10 -c 2", r"sendStatus=SEND_OK"),
    Command("brokerConsumeStats -b {b}", r"{t} +{g} +broker-a +0 +4"),
    Command("producerConnection -g EveryProducer -t {t}", r"@EveryProducer +127.0.0.1:\d+ +JAVA +V5_5_0"),
    Command("consumerConnection -g {g}", r"{c} +127.0.0.1:\d+ +JAVA +V5_5_0"),
    Command("consumerProgress -g {g}", r"{t} +broker-a +0 +4"),
    Command("consumerProgress", r"{g} +1 +V5_5_0 +PUSH +CLUSTERING"),
    Command("consumerStatus -g {g}", r"Rebalance OK"),
    Command("consumerStatus -g {g} -i {c}", r"PROP_CONSUME_TYPE +: CONSUME_PASSIVELY"),
    Command("cloneGroupOffset -s {g} -d EveryClone -t {t}", r"CODE: 26 +DESC: Group EveryClone not exist"),
    Command("cloneGroupOffset -s {g} -d EveryListed -t {t}", r"clone group offset success"),
    Command("producer -b {b}", r"producer group \(EveryProducer\) instance"),
    Command("updateKvConfig -s N -k K -v V", r"create or update kv config to namespace success"),
    Command("deleteKvConfig -s N -k K", r"delete kv config from namespace success"),
    Command("wipeWritePerm -b broker-a", r"wipe write perm of broker\[broker-a\] .* OK"),
    Command("addWritePerm -b broker-a", r"add write perm of broker\[broker-a\] .* OK"),
    Command("resetOffsetByTime -g {g} -t {t} -s now", r"broker-a +0 +4"),
    Command("resetOffsetByTime -g {g} -t {t} -s now -b {b} -q 0 -o 2", r"reset consumer offset to 2"),
    Command(
        "resetOffsetByTime -g EveryUnknown -t {t} -s now",
        r"CODE: 26 +DESC: Group EveryUnknown does not exist",
    ),
    Command("skipAccumulatedMessage -g {g} -t {t}", r"broker-a +0 +4"),
    Command("updateOrderConf -t {t} -v broker-a:4 -m put", r"update orderConf success"),
    Command("updateOrderConf -t {t} -m get", r"orderConf=\[broker-a:4\]"),
    Command("updateOrderConf -t {t} -m delete", r"delete orderConf success"),
    Command("cleanExpiredCQ -b {b}", r"success"),
    Command("deleteExpiredCommitLog -b {b}", r"success"),
    Command("cleanUnusedTopic -b {b}", r"success"),
    Command("statsAll -t {t}", r"{t} +{g} +0"),
    Command(
        "allocateMQ -t {t} -i 10.0.0.1,10.0.0.2", r'"10.0.0.2":\[."brokerName":"broker-a","queueId":[01]'
    ),
    Command("checkMsgSendRT -t {t} -a 3 -s 10", r"broker-a +1 +true"),
    Command("updateNamesrvConfig -k orderMessageEnable -v false", r"update name server config success"),
    Command("getNamesrvConfig", r"orderMessageEnable += +false"),
    Command("queryCq -b {b} -t {t} -q 0 -i 0 -c 2 -g {g}", r"physicOffset"),
    Command("sendMessage -t {t} -p hi", r"SEND_OK"),
    Command("consumeMessage -t {t} -b broker-a -i 0 -o 0 -c 1", r"MSGID: {u}"),
    Command("exportMetadata -c DefaultCluster -f {f}", r"export {f}/metadata.json success"),
    Command("exportConfigs -c DefaultCluster -f {f}", r"export {f}/configs.json success"),
    Command("exportMetrics -c DefaultCluster -f {f}", r"export {f}/metrics.json success"),
    Command("exportMetadataInRocksDB -p {f}/none -t topics", r"RocksDB path is invalid"),
    Command("exportPopRecord -b {b}", r"Export broker records, brokerName=broker-a, brokerAddr={b}"),
    Command("haStatus -b {b}", r"#SlaveNum\s+0\s"),
    Command("getSyncStateSet -a {n} -b broker-a", NO_CONTROLLER),
    Command("getBrokerEpoch -b broker-a", r"CODE: 1 +DESC: this request only for controllerMode"),
    Command("getControllerMetaData -a {n}", NO_CONTROLLER),
    Command("getControllerConfig -a {n}", missing(1010)),
    Command("updateControllerConfig -a {n} -k a -v b", missing(1009)),
    Command("electMaster -a {n} -b 0 -bn broker-a -c DefaultCluster", NO_CONTROLLER),
    Command("cleanBrokerMetadata -a {n} -bn broker-a -c DefaultCluster", NO_CONTROLLER),
    Command("dumpCompactionLog -f {f}/none", r"file {f}/none not exist"),
    Command(
        "updateColdDataFlowCtrGroupConfig -b {b} -g {g} -v 1000",
        r"updateColdDataFlowCtrGroupConfig success, {b}",
    ),
    Command("getColdDataFlowCtrInfo -b {b}", r'"{g}": ?1000'),
    Command(
        "removeColdDataFlowCtrGroupConfig -b {b} -g {g}", r"remove broker cold read threshold success, {b}"
    ),
    Command("setCommitLogReadAheadMode -b {b} -m 0", r"readahead mode success, mode: 0"),
    Command(
        "setCommitLogReadAheadMode -b {b} -m 1", r"READ_AHEAD_MODE 1 is not supported", r"success, mode: 1"
    ),
    Command("createUser -b {b} -u u -p p -t Normal", missing(3001), NO_AUTH),
    Command("updateUser -b {b} -u u -p p", missing(3002), NO_AUTH),
    Command("getUser -b {b} -u u", missing(3004), NO_AUTH),
    Command("listUser -b {b}", missing(3005), NO_AUTH),
    Command("copyUser -f {b} -t {b}", missing(3005), NO_AUTH),
    Command("deleteUser -b {b} -u u", missing(3003), NO_AUTH),
    Command("createAcl -b {b} -s User:u -r Topic:* -a Pub -d Allow", missing(3006), NO_AUTH),
    Command("updateAcl -b {b} -s User:u -r Topic:* -a Pub -d Allow", missing(3007), NO_AUTH),
    Command("getAcl -b {b} -s User:u", missing(3009), NO_AUTH),
    Command("listAcl -b {b}", missing(3010), NO_AUTH),
    Command("copyAcl -f {b} -t {b}", missing(3010), NO_AUTH),
    Command("deleteAcl -b {b} -s User:u", missing(3008), NO_AUTH),
    Command("rocksDBConfigToJson -c DefaultCluster -t topics", r"355 not supported", r"export done"),
    Command("checkRocksdbCqWriteProgress -c DefaultCluster -t {t}", missing(354), r"broker-a check doing"),
    Command("switchTimerEngine -b {b} -e F", r"switchTimerEngine to FILE_TIME_WHEEL success, {b}"),
    Command("switchTimerEngine -b {b} -e R", r"CODE: 29 +DESC: timerRocksDBEnable must be configured true"),
    Command("getBrokerLiteInfo -b {b}", r"{b} +default +\d+ +\d+"),
    Command("getParentTopicInfo -p {t}", r"\[broker-a\] error"),
    Command("getLiteTopicInfo -p {t} -l x", r"\[broker-a\] error"),
    Command("getLiteClientInfo -p {t} -g {g} -c {c}", r"\[broker-a\] error"),
    Command("getLiteGroupInfo -p {t} -g {g}", r"\[broker-a\] error"),
    Command("triggerLiteDispatch -b broker-a -p {t} -g {g}", r"broker-a +error"),
    Command("remappingStaticTopic -t EveryStatic -b broker-a", r"No topic route to do the remapping"),
    Command(
        "updateStaticTopic -t EveryStatic -qn 2 -b broker-a", missing(513), r"new mapping data is written"
    ),
)
