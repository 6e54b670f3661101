"""SVG by hand: a drawing of shapes and texts, and scales from values to pixels. No more than the plots need."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from xml.sax.saxutils import escape, quoteattr

INK, FAINT, PAPER = "#222222", "#d8d8d8", "#ffffff"
#: Told apart by people who see fewer colours (Okabe and Ito).
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
LOG_FROM = 30.0  # a scale is logarithmic when its largest value is so many times the smallest


@dataclass
class Drawing:
    """Shapes on white paper."""

    width: float
    height: float
    title: str
    _parts: list[str] = field(default_factory=list)

    def line(self, x1: float, y1: float, x2: float, y2: float, colour: str = INK, *, dashed: bool = False,
             width: float = 1) -> None:  # fmt: skip
        """A straight line."""
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self._parts.append(
            f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" '
            f'stroke-width="{width:g}"{dash}/>'
        )

    def path(self, points: Sequence[tuple[float, float]], colour: str) -> None:
        """A line through points."""
        text = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self._parts.append(f'<polyline points="{text}" fill="none" stroke="{colour}" stroke-width="2"/>')

    def dot(self, x: float, y: float, colour: str) -> None:
        """A point."""
        self._parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>')

    def bar(self, x: float, y: float, width: float, height: float, colour: str) -> None:
        """A filled rectangle."""
        self._parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(0.5, width):.1f}" height="{height:.1f}" fill="{colour}"/>'
        )

    def text(self, x: float, y: float, text: str, *, anchor: str = "start", size: float = 12, bold: bool = False,
             colour: str = INK) -> None:  # fmt: skip
        """One line of text; `anchor` start, middle or end."""
        weight = ' font-weight="bold"' if bold else ""
        self._parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size:g}" fill="{colour}"{weight}>'
            f"{escape(text)}</text>"
        )

    def render(self) -> str:
        """The file's text."""
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width:g}" height="{self.height:g}" '
            f'viewBox="0 0 {self.width:g} {self.height:g}" role="img" aria-label={quoteattr(self.title)} '
            'font-family="Helvetica, Arial, sans-serif">'
        )
        paper = f'<rect width="100%" height="100%" fill="{PAPER}"/>'
        return "\n".join([head, f"<title>{escape(self.title)}</title>", paper, *self._parts, "</svg>"]) + "\n"


@dataclass(frozen=True)
class Scale:
    """From a value to a pixel, straight or logarithmic."""

    low: float
    high: float
    start: float
    end: float
    log: bool

    @classmethod
    def over(cls, values: Sequence[float], start: float, end: float) -> Scale:
        """A scale that shows all values; logarithmic where they are far apart, else from zero."""
        above = [value for value in values if value > 0] or [1.0]
        low, high = min(above), max(above)
        if high / low > LOG_FROM:
            return cls(10 ** math.floor(math.log10(low)), high * 1.2, start, end, log=True)
        return cls(0.0, max(high * 1.1, 1e-9), start, end, log=False)

    @classmethod
    def along(cls, values: Sequence[float], start: float, end: float) -> Scale:
        """A scale from the first value to the last; logarithmic, as sizes and counts are chosen."""
        low, high = min(values), max(values)
        if low <= 0 or low == high:
            return cls(min(0.0, low), max(high, 1.0), start, end, log=False)
        return cls(low, high, start, end, log=True)

    def at(self, value: float) -> float:
        """The pixel of a value; what lies below the scale is put on its edge."""
        if self.log:
            share = math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.start + max(0.0, share) * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Round values along the scale, four to eight of them."""
        if self.log:
            first, last = math.floor(math.log10(self.low)), math.floor(math.log10(self.high))
            found = [10.0**power for power in range(first, last + 1)]
            return (
                found
                if len(found) > 2
                else sorted([*found, *(3 * tick for tick in found if 3 * tick < self.high)])
            )
        step = 10 ** math.floor(math.log10(self.high - self.low))
        while (self.high - self.low) / step < 4:
            step /= 2
        first = math.ceil(self.low / step)
        return [step * i for i in range(first, math.floor(self.high / step) + 1)]
