"""Plots as inline SVG: bars over time, and bars by name. Every name is escaped; colours come from the page's style."""

from collections.abc import Sequence
from html import escape

WIDTH, HEIGHT = 920, 220
LEFT, BOTTOM, TOP = 64, 24, 10
ROW = 24
NAME_WIDTH = 300
NAME_CHARS = 44
BAR_MAX = 48.0


def shortened(number: float) -> str:
    """With a letter for thousands, millions, …"""
    for letter in ("", "k", "M", "G", "T", "P"):
        if abs(number) < 1000:
            return (
                f"{number:.0f}{letter}" if number == int(number) or letter == "" else f"{number:.1f}{letter}"
            )
        number /= 1000
    return f"{number:.0f}E"


def over_time(points: Sequence[tuple[str, int, str]], label: str) -> str:
    """Bars in the points' order: (name of the time, height, text to be shown)."""
    high = max((height for _, height, _ in points), default=0) or 1
    inner, room = WIDTH - LEFT, HEIGHT - BOTTOM - TOP
    step = inner / max(1, len(points))
    width = min(BAR_MAX, max(0.8, step * 0.85))
    bars = []
    for n, (_, height, text) in enumerate(points):
        tall = room * height / high
        bars.append(
            f'<rect class="bar" x="{LEFT + n * step:.1f}" y="{TOP + room - tall:.1f}" width="{width:.1f}" '
            f'height="{tall:.1f}"><title>{escape(text)}</title></rect>'
        )
    lines = []
    for share in (0.0, 0.5, 1.0):
        y = TOP + room * (1 - share)
        lines.append(
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text class="axis" x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{shortened(high * share)}</text>'
        )
    every = max(1, len(points) // 6)
    names = []
    for n in range(0, len(points), every):
        x = LEFT + (n + 0.4) * step
        if x < WIDTH - 30:
            text = escape(points[n][0])
            names.append(
                f'<text class="axis" x="{x:.1f}" y="{HEIGHT - 6}" text-anchor="middle">{text}</text>'
            )
    return _svg(HEIGHT, label, [*lines, *bars, *names])


def by_name(rows: Sequence[tuple[str, int, str]], label: str) -> str:
    """One bar a row: (name, length, text beside it)."""
    high = max((length for _, length, _ in rows), default=0) or 1
    room = WIDTH - NAME_WIDTH - 150
    parts = []
    for n, (name, length, text) in enumerate(rows):
        shown = name if len(name) <= NAME_CHARS else f"{name[: NAME_CHARS - 1]}…"
        y, width = n * ROW, max(1.0, room * length / high)
        parts.append(
            f'<text class="name" x="{NAME_WIDTH - 8}" y="{y + 16}" text-anchor="end">{escape(shown)}'
            f"<title>{escape(name)}</title></text>"
            f'<rect class="bar" x="{NAME_WIDTH}" y="{y + 4}" width="{width:.1f}" height="{ROW - 9}" rx="2"/>'
            f'<text class="axis" x="{NAME_WIDTH + width + 6:.1f}" y="{y + 16}">{escape(text)}</text>'
        )
    return _svg(max(ROW, ROW * len(rows)), label, parts)


def _svg(height: int, label: str, parts: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(label, quote=True)}">'
        f"{''.join(parts)}</svg>"
    )
