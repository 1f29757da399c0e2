"""A scrape of 100,000 pairs of topic and group holds the loop for a moment only, and its size is bounded."""

from pathlib import Path

from tests.metrics.large_scrape import GROUPS, SERIES_MAX, TOPICS, measure


def test_a_large_scrape_delays_no_other_request(tmp_path: Path) -> None:
    """Generous bounds, for a busy machine; `python -m tests.metrics.large_scrape` prints the numbers."""
    measured = measure(tmp_path)
    assert measured.loop_ms < 500
    assert measured.median_ms < 20
    assert TOPICS * GROUPS > SERIES_MAX
    assert 7 * SERIES_MAX < measured.lines < 9 * SERIES_MAX
