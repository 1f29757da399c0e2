"""Makes the Source that options name: stores in folders, or brokers found through name servers."""

from collections.abc import Mapping

from firearrow.spark_tools.base.source import Source
from firearrow.spark_tools.offline.store_source import StoreSource
from firearrow.spark_tools.plan.options import SourceOptions


def source_of(options: SourceOptions, given: Mapping[str, str]) -> Source:
    """`given`: the strings that `options` was read from, with the client's own options. InvalidOption."""
    if options.folders():
        return StoreSource(options.folders())
    from firearrow.spark_tools.live.broker_source import BrokerSource  # noqa: PLC0415 (files need no client)
    from firearrow.spark_tools.live.cluster import Cluster  # noqa: PLC0415

    return BrokerSource(Cluster.of(given), options.group, options.timeout_s)
