"""Options become an Origin: the folders of stores, or the brokers behind name servers."""

from collections.abc import Mapping

from firearrow.spark_tools.offline.origin import StoreOrigin
from firearrow.spark_tools.origin import Origin
from firearrow.spark_tools.plan.options import SourceOptions


def origin_of(options: SourceOptions, given: Mapping[str, str]) -> Origin:
    """`given`: all of what `options` was made of; the client's own are in it. OptionWrong."""
    if options.folders():
        return StoreOrigin(options.folders())
    from firearrow.spark_tools.live.origin import BrokerOrigin  # noqa: PLC0415 (files need no client)
    from firearrow.spark_tools.live.target import Target  # noqa: PLC0415

    return BrokerOrigin(Target.of(given), options.group, options.timeout_s)
