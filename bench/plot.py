"""Draws a history as SVG: one small panel for each row, values on a logarithmic scale.

Uses no plotting library.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

PANEL_WIDTH, PANEL_HEIGHT = 360, 190
ACROSS = 2
LEFT, RIGHT, TOP, BOTTOM = 52, 12, 30, 34
COLOURS = ("#c0392b", "#2e6da4", "#7a7a7a", "#3a8f4d", "#8e5ea2", "#b8860b")
STYLE = (
    "text{font:11px sans-serif;fill:#333}.name{font-weight:bold}.axis{stroke:#ccc}"
    ".small{font-size:9px;fill:#666}path{fill:none;stroke-width:1.6}"
)


@dataclass(frozen=True, slots=True)
class Line:
    """`values`: one for each position on the x axis, None if it is missing; only values above 0 are drawn."""

    name: str
    values: Sequence[float | None]


@dataclass(frozen=True, slots=True)
class Panel:
    name: str
    lines: Sequence[Line]
    places: Sequence[str]
    """The labels of the x axis."""


def picture(panels: Sequence[Panel]) -> str:
    rows = math.ceil(len(panels) / ACROSS)
    width, height = ACROSS * PANEL_WIDTH, max(rows, 1) * PANEL_HEIGHT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">',
        f"<style>{STYLE}</style>",
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
    ]
    for number, panel in enumerate(panels):
        x, y = number % ACROSS * PANEL_WIDTH, number // ACROSS * PANEL_HEIGHT
        parts += [f'<g transform="translate({x},{y})">', *_panel(panel), "</g>"]
    return "\n".join([*parts, "</svg>", ""])


def _panel(panel: Panel) -> list[str]:
    seen = [value for line in panel.lines for value in line.values if value]
    parts = [f'<text class="name" x="{LEFT}" y="14">{escape(panel.name)}</text>']
    if not seen:
        return [*parts, f'<text class="small" x="{LEFT}" y="60">not measured yet</text>']
    low, high = _decades(min(seen), max(seen))
    for power in range(low, high + 1):
        y = _y(10.0**power, low, high)
        parts.append(f'<line class="axis" x1="{LEFT}" y1="{y:.1f}" x2="{PANEL_WIDTH - RIGHT}" y2="{y:.1f}"/>')
        parts.append(
            f'<text class="small" x="4" y="{y + 3:.1f}">{10**power if power >= 0 else 10.0**power:,}</text>'
        )
    for number, line in enumerate(panel.lines):
        parts += _line(line, COLOURS[number % len(COLOURS)], number, low, high)
    for at in sorted({0, len(panel.places) - 1}):
        anchor = "end" if at else "start"
        parts.append(
            f'<text class="small" text-anchor="{anchor}" x="{_x(at, len(panel.places)):.1f}" '
            f'y="{PANEL_HEIGHT - BOTTOM + 12}">{escape(panel.places[at])}</text>'
        )
    return parts


def _line(line: Line, colour: str, number: int, low: int, high: int) -> list[str]:
    points = [
        (_x(at, len(line.values)), _y(value, low, high)) for at, value in enumerate(line.values) if value
    ]
    if not points:
        return []
    steps = " ".join(f"{'L' if n else 'M'}{x:.1f} {y:.1f}" for n, (x, y) in enumerate(points))
    dots = [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.2" fill="{colour}"/>' for x, y in points]
    x = LEFT + number % 3 * 100
    y = PANEL_HEIGHT - 10 + number // 3 * 9
    label = f'<text class="small" x="{x}" y="{y}" style="fill:{colour}">{escape(line.name)}</text>'
    return [f'<path d="{steps}" stroke="{colour}"/>', *dots, label]


def _decades(low: float, high: float) -> tuple[int, int]:
    """The powers of ten that enclose both values; at least one decade."""
    bottom, top = math.floor(math.log10(low)), math.ceil(math.log10(high))
    return (bottom, top) if top > bottom else (bottom, bottom + 1)


def _x(at: int, places: int) -> float:
    return LEFT + (PANEL_WIDTH - LEFT - RIGHT) * (at / (places - 1) if places > 1 else 0.5)


def _y(value: float, low: int, high: int) -> float:
    part = (math.log10(value) - low) / (high - low)
    return TOP + (PANEL_HEIGHT - TOP - BOTTOM) * (1 - part)
