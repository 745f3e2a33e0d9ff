"""A drawing in SVG, for light and dark: shapes by class, colours in one style sheet.

Plain text, so that a change of a figure shows in a diff and the same numbers give the same bytes.
"""

from __future__ import annotations

from html import escape

#: name of a class -> (light, dark). The hues are those of the profile page.
FILLS = {
    "bg": ("#ffffff", "#14171c"),
    "panel": ("#f1f3f6", "#20252d"),
    "cell": ("#ffffff", "#14171c"),
    "tensor": ("#8cc9a4", "#2f7d51"),
    "vector": ("#f0b98a", "#96531a"),
    "scalar": ("#b9b1ef", "#584ca8"),
    "gpsimd": ("#d9cf8b", "#6d6010"),
    "dma": ("#9dc0ec", "#2f5f9e"),
    "hot": ("#f3a6c0", "#97345c"),
    "faint": ("#e2e6ec", "#2c333d"),
}
INK = {"ink": ("#1b1f27", "#e8ebf0"), "dim": ("#515b6b", "#aab3c2")}
LINE = ("#8a94a5", "#66707f")
MARK = ("#c11f5c", "#ff7bac")
FONT = 'system-ui,"DejaVu Sans",sans-serif'


FRAME_S = 1.5
#: Frames take turns; where nothing may move (paper, readers who ask for it) all are shown alike.
MOVES = (
    ".frame{{animation:turn {0:g}s linear infinite}}"
    "@keyframes turn{{0%,{1:.4g}%{{opacity:1}}{1:.4g}1%,100%{{opacity:.5}}}}"
    "@media print{{.frame{{animation:none}}}}"
    "@media(prefers-reduced-motion:reduce){{.frame{{animation:none}}}}"
)


def _style() -> str:
    def rules(which: int) -> str:
        out = [f".{name}{{fill:{pair[which]}}}" for name, pair in (FILLS | INK).items()]
        out += [
            f".line{{stroke:{LINE[which]}}}",
            f".roof{{stroke:{FILLS['dma'][1 - which]}}}",
            f".mark{{stroke:{MARK[which]}}}.dot{{fill:{MARK[which]}}}",
            f".edge{{stroke:{LINE[which]}}}",
        ]
        return "".join(out)

    return (
        f"text{{font:13px {FONT}}}.small{{font-size:11px}}.bold{{font-weight:600}}"
        ".line,.mark,.roof{fill:none}.mark,.roof{stroke-width:2}"
        + rules(0)
        + f"@media(prefers-color-scheme:dark){{{rules(1)}}}"
    )


class Drawing:
    """Shapes on a sheet; `title` and `about` are what a screen reader says of it."""

    def __init__(self, title: str, about: str, width: int, height: int, shown: int = 0):
        """`shown`: the width in pixels that a page gives it if there is room (default: all)."""
        self.title, self.about, self.width, self.height = title, about, width, height
        self.shown = shown
        self.parts: list[str] = []
        self.moves = ""

    def begin_frame(self, number: int, count: int) -> None:
        """Begin a group that stands out while it is its turn; printed, all are alike."""
        delay = (number - count) * FRAME_S  # below 0: the first frame has its turn at once
        self.moves = MOVES.format(count * FRAME_S, 100 / count)
        self.parts.append(f'<g class="frame" style="animation-delay:{delay:g}s">')

    def end_frame(self) -> None:
        """End the group of `begin_frame`."""
        self.parts.append("</g>")

    def rect(
        self,
        x: float,
        y: float,
        w: float,
        h: float,
        fill: str,
        edge: bool = True,
        round: float = 0,
        tip: str = "",
    ) -> None:
        """Draw a box."""
        kind = f"{fill} edge" if edge else fill
        body = f"><title>{escape(tip)}</title></rect>" if tip else "/>"
        corner = f' rx="{round:g}"' if round else ""
        self.parts.append(
            f'<rect x="{x:.6g}" y="{y:.6g}" width="{w:.6g}" height="{h:.6g}"'
            f'{corner} class="{kind}"{body}'
        )

    def text(
        self, x: float, y: float, words: str, kind: str = "ink", anchor: str = "start"
    ) -> None:
        """Write a line; `kind`: ink or dim, with small or bold."""
        end = f' text-anchor="{anchor}"' if anchor != "start" else ""
        self.parts.append(
            f'<text x="{x:.6g}" y="{y:.6g}"{end} class="{kind}">{escape(words)}</text>'
        )

    def line(
        self,
        *points: tuple[float, float],
        kind: str = "line",
        dash: bool = False,
        arrow: bool = False,
    ) -> None:
        """Draw a line through points, with an arrow at its end if asked for."""
        path = "M" + "L".join(f"{x:.6g} {y:.6g}" for x, y in points)
        more = (' stroke-dasharray="4 3"' if dash else "") + (
            ' marker-end="url(#tip)"' if arrow else ""
        )
        self.parts.append(f'<path d="{path}" class="{kind}"{more}/>')

    def dot(self, x: float, y: float, tip: str = "") -> None:
        """Draw a point."""
        self.parts.append(
            f'<circle cx="{x:.6g}" cy="{y:.6g}" r="4.5" class="dot">'
            f"<title>{escape(tip)}</title></circle>"
        )

    def svg(self) -> str:
        """Return the file's text."""
        shown = (
            f' width="{self.shown}" height="{self.height * self.shown / self.width:.0f}"'
            if self.shown
            else ""
        )
        return (
            '<svg xmlns="http://www.w3.org/2000/svg" '
            f'viewBox="0 0 {self.width} {self.height}"{shown}'
            f' role="img" aria-labelledby="t d">\n<title id="t">{escape(self.title)}</title>\n'
            f'<desc id="d">{escape(self.about)}</desc>\n<style>{_style()}{self.moves}</style>\n'
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" '
            'markerHeight="8" orient="auto"><path d="M0 0L8 4L0 8z" class="dim"/></marker>'
            f'</defs>\n<rect width="{self.width}" height="{self.height}" rx="6" class="bg"/>\n'
            + "\n".join(self.parts)
            + "\n</svg>\n"
        )
