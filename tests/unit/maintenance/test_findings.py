"""The vocabulary of findings: what scripts read of them stays as it is."""

import pickle

import pytest

from firearrow._native.store_checks.findings import (
    LISTED_MAX,
    Extent,
    Finding,
    Findings,
    Kind,
    Severity,
    as_row,
)
from firearrow._native.store_checks.raw_findings import KINDS

COLUMNS = [
    "kind",
    "store",
    "file",
    "position",
    "text",
    "physical_offset",
    "topic",
    "queue_id",
    "queue_offset",
    "count",
    "bytes",
]  # of findings.parquet and of the JSON of `store verify` and Spark's audit
WHERE = Extent("store", "/s/commitlog/0", 7, physical_offset=70, count=3, bytes=90)


def test_every_kind_has_a_severity_a_meaning_and_a_repair() -> None:
    for kind in Kind:
        finding = kind.finding(WHERE, "text")
        assert isinstance(finding.severity, Severity)
        assert finding.meaning
        assert finding.repair
        assert Kind(str(kind)) is kind
    assert Kind.TORN.finding(WHERE, "").severity is Severity.CRITICAL
    assert Kind.NO_KEY.finding(WHERE, "").severity is Severity.WARNING
    assert len({*KINDS}) == len(KINDS)


def test_a_row_has_the_columns_that_scripts_read() -> None:
    row = as_row(Kind.TORN.finding(WHERE, "why"))
    assert list(row) == COLUMNS
    assert (row["kind"], row["text"], row["physical_offset"], row["count"]) == ("torn", "why", 70, 3)
    assert type(row["kind"]) is str


def test_a_finding_reaches_the_driver_as_it_was() -> None:
    """Spark's executors and the processes of `store verify` pickle them."""
    finding = Kind.BAD_CRC.finding(WHERE, "text")
    again = pickle.loads(pickle.dumps(finding))
    assert again == finding
    assert again.kind is Kind.BAD_CRC
    assert pickle.loads(pickle.dumps(Finding(Severity.NOTE, "topic t", "a", "b", "c"))).where == "topic t"


def test_findings_are_counted_beyond_their_list_and_found_by_position() -> None:
    findings = Findings()
    for number in range(LISTED_MAX + 5):
        findings.add(Kind.NO_KEY.finding(Extent("store", "f", number, count=2), ""))
    findings.add(Kind.TORN.finding(Extent("store", "g", 0), ""))
    assert len(findings.listed) == LISTED_MAX + 1
    assert findings.totals == {"key not in index": 2 * (LISTED_MAX + 5), "torn": 1}
    assert findings.is_listed_at(Extent("other", "f", 3))
    assert not findings.is_listed_at(Extent("store", "f", LISTED_MAX + 2))
    assert findings.ordered()[0].kind is Kind.TORN
    for finding in list(findings.listed):
        findings.retract(finding)
    assert findings.totals == {"key not in index": 10}
    assert findings


@pytest.mark.parametrize("totals", [{}, {Kind.TORN: 0}])
def test_nothing_found_is_clean(totals: dict[str, int]) -> None:
    findings = Findings()
    findings.extend(totals, ())
    assert not findings
    assert not findings.totals
