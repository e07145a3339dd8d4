"""The few shapes of an SVG picture; everything that comes from a host is escaped."""

from __future__ import annotations

from html import escape

_FONT = "font-family='DejaVu Sans Mono, Menlo, Consolas, monospace'"


class Svg:
    """Shapes on a canvas that grows with them."""

    def __init__(self) -> None:
        self._shapes: list[str] = []
        self.width, self.height = 0.0, 0.0

    def box(
        self, x: float, y: float, width: float, height: float, *, fill: str, stroke: str = "#5b6675", title: str = ""
    ) -> None:
        """A rounded rectangle; `title` is shown by a browser where the mouse rests."""
        self._grow(x + width, y + height)
        inner = f"<title>{_text(title)}</title>" if title else ""
        self._shapes.append(
            f"<rect x='{x:g}' y='{y:g}' width='{width:g}' height='{height:g}' rx='4' "
            f"fill='{fill}' stroke='{stroke}'>{inner}</rect>"
        )

    def line(
        self,
        ends: tuple[float, float, float, float],
        *,
        stroke: str,
        width: float = 1.5,
        dash: str = "",
        title: str = "",
    ) -> None:
        """A straight line from (x, y) to (x, y)."""
        x1, y1, x2, y2 = ends
        self._grow(max(x1, x2), max(y1, y2))
        dashed = f" stroke-dasharray='{dash}'" if dash else ""
        inner = f"<title>{_text(title)}</title>" if title else ""
        self._shapes.append(
            f"<line x1='{x1:g}' y1='{y1:g}' x2='{x2:g}' y2='{y2:g}' stroke='{stroke}' "
            f"stroke-width='{width:g}'{dashed}>{inner}</line>"
        )

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        size: int = 12,
        anchor: str = "start",
        fill: str = "#1c2430",
        bold: bool = False,
    ) -> None:
        """One line of text, its foot at `y`."""
        length = len(text) * size * 0.62
        right = {"start": length, "middle": length / 2, "end": 0.0}[anchor]
        self._grow(x + right, y + size / 2)
        weight = " font-weight='bold'" if bold else ""
        place = f"x='{x:g}' y='{y:g}' font-size='{size}' text-anchor='{anchor}'"
        self._shapes.append(f"<text {place} fill='{fill}'{weight}>{_text(text)}</text>")

    def document(self) -> str:
        """The whole picture."""
        width, height = f"{self.width + 20:.0f}", f"{self.height + 20:.0f}"
        size = f"width='{width}' height='{height}'"
        head = f"<svg xmlns='http://www.w3.org/2000/svg' {size} viewBox='0 0 {width} {height}' {_FONT}>"
        return "\n".join([head, f"<rect {size} fill='#ffffff'/>", *self._shapes, "</svg>", ""])

    def _grow(self, x: float, y: float) -> None:
        self.width, self.height = max(self.width, x), max(self.height, y)


def _text(text: str) -> str:
    """XML allows neither most control characters nor lone surrogates, escaped or not."""
    return escape("".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text), quote=True)
