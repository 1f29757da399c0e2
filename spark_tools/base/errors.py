"""Errors of the Spark tools: each text is one sentence that states what is wrong and what to do."""

from firearrow._native.store.files.errors import StoreUnreadable as StoreUnreadable  # noqa: PLC0414


class SparkToolsError(Exception):
    """Base of the errors below; the text is for users."""


class InvalidOption(SparkToolsError, ValueError):
    """An option of a source, a sink or a job; the text names it."""


class TopicNotFound(SparkToolsError):
    """The source has no such topic."""


class DataLoss(SparkToolsError):
    """Messages that were asked for no longer exist and `failOnDataLoss` is set; the text names the ranges."""


class SendFailed(SparkToolsError):
    """The target did not accept messages; none after them was counted as sent."""


class Unreachable(SparkToolsError):
    """Brokers or name servers did not answer in time; the text names them."""


class RequestRefused(SparkToolsError):
    """A broker refused a query or a pull; the text quotes its remark."""


class WriteFailed(SparkToolsError):
    """A file of a job cannot be written, mostly because the disk is full; what was finished before is
    kept."""


REFUSALS = (SparkToolsError, StoreUnreadable)
"""Errors that end a command with one sentence instead of a traceback."""
