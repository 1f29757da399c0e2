"""The text of a scrape: Prometheus's format 0.0.4 and OpenMetrics 1.0. Pure functions.

A family is a list of pieces of bytes, so that its maker may pause between them. Labels are texts of the form
`topic="A",group="B"`, made by `labels`. Counters have names without `_total`, which is written after them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from firearrow._native.base.histogram import Histogram

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPEN_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"
OVERFLOW = 'otel_metric_overflow="true"'
"""The labels of the series that holds all series above the limit, as OpenTelemetry has it."""
LINES_IN_PIECE = 64
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})

Number = int | float
Sample = tuple[str, Number]


class Buckets(NamedTuple):
    """`counts`: one for each bound and one above all; `total`: the sum of all values."""

    bounds: Sequence[Number]
    counts: Sequence[int]
    total: Number


def labels(**pairs: object) -> str:
    return ",".join(f'{name}="{str(value).translate(_ESCAPES)}"' for name, value in pairs.items())


def labels_of(names: Sequence[str], values: Sequence[str]) -> str:
    """Labels of an EventCounts series; () are those of the overflow."""
    return labels(**dict(zip(names, values, strict=True))) if values else OVERFLOW


def boolean(value: object) -> str:
    return "true" if value else "false"


def buckets_of(histogram: Histogram, bounds: Sequence[int], scale: int = 1) -> Buckets:
    """`scale`: how many of the histogram's units one of the family's is; bounds and sum are divided by it."""
    counts, total = histogram.read()
    if scale == 1:
        return Buckets(bounds, counts, total)
    return Buckets([bound / scale for bound in bounds], counts, total / scale)


def added(parts: Iterable[Buckets]) -> Buckets | None:
    """The sum of histograms with the same bounds; None if there are none."""
    found: Buckets | None = None
    for part in parts:
        if found is None:
            found = part
        else:
            counts = [a + b for a, b in zip(found.counts, part.counts, strict=True)]
            found = Buckets(found.bounds, counts, found.total + part.total)
    return found


def coarser(buckets: Buckets, bounds: Sequence[Number]) -> Buckets:
    """The same values in fewer ranges. ValueError: a bound is not among the finer ones."""
    counts, at = [], 0
    for bound in bounds:
        end = list(buckets.bounds).index(bound) + 1
        counts.append(sum(buckets.counts[at:end]))
        at = end
    return Buckets(bounds, [*counts, sum(buckets.counts[at:])], buckets.total)


def limited(
    samples: Iterable[Sample], limit: int, combine: Callable[[Number, Number], Number] = lambda a, b: a + b
) -> Iterator[Sample]:
    """At most `limit` samples: the last one is the sum of all that follow, or what `combine` makes of them."""
    rest: Number | None = None
    for number, sample in enumerate(samples):
        if number < limit - 1:
            yield sample
        else:
            rest = sample[1] if rest is None else combine(rest, sample[1])
    if rest is not None:
        yield OVERFLOW, rest


class Exposition:
    """`common`: the labels of every series."""

    def __init__(self, common: Mapping[str, str], *, is_open_metrics: bool) -> None:
        self.common = labels(**common)
        self.common_bytes = self.common.encode("utf-8", "replace")
        self.is_open_metrics = is_open_metrics

    def head(self, name: str, kind: str, help_text: str) -> bytes:
        shown = f"{name}_total" if kind == COUNTER and not self.is_open_metrics else name
        return f"# HELP {shown} {help_text}\n# TYPE {shown} {kind}\n".encode()

    def line(self, name: str, own: str, value: Number) -> str:
        return f"{name}{{{self.common}{',' if own and self.common else ''}{own}}} {text_of(value)}\n"

    def family(self, name: str, kind: str, help_text: str, samples: Iterable[Sample]) -> Iterator[bytes]:
        """A counter or gauge; nothing if there are no samples."""
        suffix = "_total" if kind == COUNTER else ""
        lines: list[str] = []
        started = False
        for own, value in samples:
            if not started:
                started = True
                yield self.head(name, kind, help_text)
            lines.append(self.line(name + suffix, own, value))
            if len(lines) == LINES_IN_PIECE:
                yield "".join(lines).encode("utf-8", "replace")
                lines.clear()
        yield "".join(lines).encode("utf-8", "replace")

    def histogram(
        self, name: str, help_text: str, series: Iterable[tuple[str, Buckets]], limit: int
    ) -> Iterator[bytes]:
        """At most `limit` series; the others are added up in one."""
        rest: list[Buckets] = []
        started = False
        for number, (own, buckets) in enumerate(series):
            if not started:
                started = True
                yield self.head(name, HISTOGRAM, help_text)
            if number < limit - 1:
                yield self._buckets(name, own, buckets)
            else:
                rest = [part for part in (added([*rest, buckets]),) if part is not None]
        if rest:
            yield self._buckets(name, OVERFLOW, rest[0])

    def _buckets(self, name: str, own: str, buckets: Buckets) -> bytes:
        prefix = f"{own}," if own else ""
        count, lines = 0, []
        for bound, number in zip(buckets.bounds, buckets.counts, strict=False):
            count += number
            lines.append(self.line(f"{name}_bucket", f'{prefix}le="{float(bound)}"', count))
        count += buckets.counts[-1]
        lines.append(self.line(f"{name}_bucket", f'{prefix}le="+Inf"', count))
        lines.append(self.line(f"{name}_count", own, count))
        lines.append(self.line(f"{name}_sum", own, buckets.total))
        return "".join(lines).encode("utf-8", "replace")

    def target(self) -> bytes:
        """The series `target_info`, which OpenTelemetry's exporter has."""
        if self.is_open_metrics:
            return b"# HELP target Target metadata\n# TYPE target info\ntarget_info{} 1\n"
        return b"# HELP target_info Target metadata\n# TYPE target_info gauge\ntarget_info 1\n"

    def end(self) -> bytes:
        return b"# EOF\n" if self.is_open_metrics else b""


def text_of(value: Number) -> str:
    if isinstance(value, int):
        return str(value)
    if value == float("inf"):
        return "+Inf"
    return repr(value)
