"""Spark with a broker that accepts TLS only and checks users: one reads, one writes, the others are refused. And with
accounts of plain_acl.yml."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from firearrow._native.wire.codes import RequestCode
from firearrow.spark_tools.jobs.replay import cli as replay
from tests.auth.secured import SignedSocket, ask_ok, create_user, grant, options
from tests.auth.test_plain_acl import FILE, broker_with
from tests.spark.replaying import job
from tests.support.broker_process import BrokerProcess
from tests.support.certificates import CertificateFiles, settings
from tests.support.requests import topic_ext

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

READER, WRITER = "reader", "writer"
ROWS = 20


class Guarded:
    """Users READER, who may read `From`, and WRITER, who may write `To`; both have the password NAME-word."""

    def __init__(self, broker: BrokerProcess, files: CertificateFiles) -> None:
        assert broker.name_server is not None
        self.name_server = "{}:{}".format(*broker.name_server)
        self.authority = files.path("authority.pem")
        with SignedSocket(broker.address, tls=files.client()) as root:
            for topic in ("From", "To"):
                ask_ok(root, RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(topic, 1))
            for user in (READER, WRITER):
                create_user(root, user, f"{user}-word")
            grant(root, READER, "Topic:From", "Sub", "Get")
            grant(root, READER, "Group:TOOLS_CONSUMER", "Sub", "Get")
            grant(root, WRITER, "Topic:From", "Pub", "Get")
            grant(root, WRITER, "Topic:To", "Pub", "Get")

    def options(self, user: str) -> dict[str, str]:
        return {
            "rocketmq.useTLS": "true",
            "rocketmq.tls.client.trustCertPath": self.authority,
            "rocketmq.accessKey": user,
            "rocketmq.secretKey": f"{user}-word",
        }


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Guarded]:
    files = CertificateFiles(tmp_path / "certificates")
    arguments = (*options(), *files.arguments, *settings(server_mode="enforcing"))
    with BrokerProcess(tmp_path / "store", *arguments) as broker:
        yield Guarded(broker, files)


def test_one_reads_one_writes_and_one_is_refused(
    spark: "SparkSession", guarded: Guarded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = {"nameServer": guarded.name_server}

    def write(topic: str, **more: str) -> None:
        rows = spark.createDataFrame([(f"body {n}",) for n in range(ROWS)], "body string")
        rows.write.format("rocketmq").mode("append").options(**at, topic=topic, **more).save()

    def read(topic: str, **more: str) -> int:
        return spark.read.format("rocketmq").options(**at, topic=topic, **more).load().count()

    write("From", **guarded.options(WRITER))
    assert read("From", **guarded.options(READER)) == ROWS
    with pytest.raises(Exception, match="grant it: firearrow user grant reader Topic:From Pub"):
        write("From", **guarded.options(READER))
    with pytest.raises(Exception, match="grant it: firearrow user grant reader Topic:To "):
        read("To", **guarded.options(READER))

    def words(option: str, user: str) -> list[str]:
        return [word for pair in guarded.options(user).items() for word in (option, "=".join(pair))]

    source = ["--name-server", guarded.name_server, *words("--source-option", READER), "--topics", "From"]
    target = ["--target", guarded.name_server, "--to-topic", "To"]
    run = job(replay, tmp_path, monkeypatch)
    ran = run(*source, *target, *words("--target-option", WRITER))
    assert ran.code == 0, ran.err
    assert read("From", **guarded.options(READER)) == ROWS
    refused = run(*source, *target, *words("--target-option", READER), checkpoint="other")
    assert refused.code != 0
    assert "firearrow user grant reader Topic:To" in refused.out  # the broker refuses the send


def test_accounts(spark: "SparkSession", tmp_path: Path) -> None:
    keys = {"rocketmq.accessKey": "RocketMQ", "rocketmq.secretKey": "12345678"}
    with (
        broker_with(tmp_path, FILE) as broker,
        SignedSocket(broker.address, "rocketmq2", "12345678") as admin,
    ):
        for topic in ("topicB", "topicC"):
            ask_ok(admin, RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(topic, 1))
        assert broker.name_server is not None
        at = keys | {"nameServer": "{}:{}".format(*broker.name_server)}
        rows = spark.createDataFrame([(f"body {n}",) for n in range(ROWS)], "body string")

        def write(topic: str, **more: str) -> None:
            rows.write.format("rocketmq").mode("append").options(**at | more, topic=topic).save()

        write("topicB")
        assert spark.read.format("rocketmq").options(**at, topic="topicB").load().count() == ROWS
        with pytest.raises(Exception, match=r"add topicC=PUB.* to the topicPerms of the account"):
            write("topicC")
        with pytest.raises(Exception, match="the secret key is not that of this user"):
            write("topicB", **{"rocketmq.secretKey": "wrong"})


def test_a_stream_reads_and_writes(spark: "SparkSession", guarded: Guarded, tmp_path: Path) -> None:
    at = {"nameServer": guarded.name_server}
    rows = spark.createDataFrame([(f"body {n}",) for n in range(ROWS)], "body string")
    to_first = rows.write.format("rocketmq").mode("append")
    to_first.options(**at, topic="From", **guarded.options(WRITER)).save()
    source = spark.readStream.format("rocketmq").option("startingOffsets", "earliest")
    live = source.options(**at, topic="From", **guarded.options(READER)).load().select("body")
    query = (
        live.writeStream.format("rocketmq")
        .options(**at, topic="To", **guarded.options(WRITER))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert sum(int(each["numInputRows"]) for each in query.recentProgress) == ROWS
