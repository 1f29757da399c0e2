"""Kafka's broker in one process, and its connector for Spark, from Maven Central: the peer of the Spark rows."""

import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

from bench.maven import class_path
from bench.ports import free_port
from bench.programs import CACHE
from bench.servers import wait_port

BROKER = "org.apache.kafka:kafka_2.13:4.3.1"
CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"
"""The newest that was released when this was written; it runs on Spark 4.3."""
NOT_IN_SPARK = ("spark-sql-kafka", "spark-token-provider-kafka", "kafka-clients", "commons-pool2")
HEAP = "1g"
CLUSTER_ID = "RmlyZUFycm93LWJlbmNoLQ"
CONFIG = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
log.dirs={folder}/log
num.partitions=4
offsets.topic.replication.factor=1
"""


def connector_jars() -> str:
    """For `spark-submit --jars`. RuntimeError: Maven or Java is missing."""
    jars = class_path(CACHE / "kafka-connector", CONNECTOR).split(":")
    return ",".join(jar for jar in jars if Path(jar).name.startswith(NOT_IN_SPARK))


class Kafka:
    """A broker that is ready in the `with` block; new topics get four partitions."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> Self:
        """RuntimeError: it did not start."""
        jars = class_path(CACHE / "kafka", BROKER)
        self._folder.mkdir()
        port, controller = free_port(), free_port()
        config, log = self._folder / "server.properties", self._folder / "kafka.log"
        config.write_text(CONFIG.format(port=port, controller=controller, folder=self._folder))
        java = ["java", f"-Xms{HEAP}", f"-Xmx{HEAP}", "-cp", jars]
        formatting = [*java, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(config)]
        subprocess.run(formatting, check=True, capture_output=True, timeout=60)
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                [*java, "kafka.Kafka", str(config)], stdout=out, stderr=out, stdin=subprocess.DEVNULL
            )
        self.address = f"127.0.0.1:{port}"
        wait_port(("127.0.0.1", port), self.process, log)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait()
