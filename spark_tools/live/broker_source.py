"""BrokerSource: the brokers of a Cluster as a source of messages. Picklable; connects only in `open`."""

from dataclasses import dataclass

from firearrow.client.base.errors import ConfigError
from firearrow.client.base.names import Namespace, check_group
from firearrow.spark_tools.base.errors import InvalidOption
from firearrow.spark_tools.live.cluster import Cluster
from firearrow.spark_tools.live.reader import LiveReader

GROUP = "TOOLS_CONSUMER"
"""Every broker has this group, for tools that only read. A new group would stay in each broker's table
permanently."""


@dataclass(frozen=True, slots=True)
class BrokerSource:
    cluster: Cluster
    group: str | None = None
    """The group named in pull requests, for brokers that check permissions by group. Commits nothing."""
    timeout_s: float = 60
    """How long to retry a broker that does not answer."""
    news_s: float = 10
    """How long to wait for records before the planned end that the broker does not have yet."""

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
