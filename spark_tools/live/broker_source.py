"""BrokerSource: the brokers behind a Target as an origin of messages. Picklable; opens nothing before `open`."""

from dataclasses import dataclass

from firearrow.client.base.errors import ConfigError
from firearrow.client.base.names import Namespace, check_group
from firearrow.spark_tools.base.errors import InvalidOption
from firearrow.spark_tools.live.cluster import Cluster
from firearrow.spark_tools.live.reader import LiveReader

GROUP = "TOOLS_CONSUMER"
"""Every broker has this group, for tools that only look. A new one would stay in each broker's table for good."""


@dataclass(frozen=True, slots=True)
class BrokerSource:
    cluster: Cluster
    group: str | None = None
    """Which pulls name, for brokers that give rights by groups; nothing is committed for it."""
    timeout_s: float = 60
    """How long brokers that do not answer are waited for."""
    news_s: float = 10
    """How long records below a planned end are waited for that the broker does not have."""

    def open(self) -> LiveReader:
        """InvalidOption."""
        group = GROUP
        if self.group is not None:
            try:
                group = Namespace(self.cluster.namespace).wrap(check_group(self.group))
            except ConfigError as error:
                raise InvalidOption(f"group: {error}") from None
        return LiveReader(self.cluster, group, self.timeout_s, self.news_s)

    def __str__(self) -> str:
        return str(self.cluster)
