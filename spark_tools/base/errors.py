"""What the Spark tools refuse, each in one sentence that says what to do."""

from firearrow._native.store.files.errors import StoreUnreadable as StoreUnreadable  # noqa: PLC0414 (handed on)


class SparkToolsError(Exception):
    """Anything below; the text is for people."""


class InvalidOption(SparkToolsError, ValueError):
    """An option of a source, a sink or a job; the text names it."""


class TopicNotFound(SparkToolsError):
    """The source has no such topic."""


class DataLoss(SparkToolsError):
    """Messages that were asked for are gone and `failOnDataLoss` is set; the text names the ranges."""


class SendFailed(SparkToolsError):
    """The target did not take messages; nothing behind them was counted as sent."""


class Unreachable(SparkToolsError):
    """Brokers or name servers gave no answer for as long as was waited; the text names them."""


class RequestRefused(SparkToolsError):
    """A broker refused to answer a question, or to give messages; the text has its words."""


class WriteFailed(SparkToolsError):
    """A file of a job cannot be written, mostly for want of room; what was finished before is kept."""


REFUSALS = (SparkToolsError, StoreUnreadable)
"""Whatever ends a program of ours with one sentence."""
