"""Write all figures, or the named ones: `python -m docs.figures [NAME ...]`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from .attention import tile
from .convnet import taps
from .diagrams import DIAGRAMS
from .moe import index
from .norms import online
from .predicted import PREDICTED
from .runs import RUNS

HERE = Path(__file__).parent
#: name and drawing of the figures of single labs
LABS = {
    "norms-online": online,
    "attention-tile": tile,
    "moe-index": index,
    "convnet-taps": taps,
}
#: what the latency model said when the figures of profiles were drawn, in us or 10^12/s
FACTS = HERE / "predicted.json"


def main(names: list[str]) -> int:
    """Write the figures; return 2 for a name that there is not."""
    drawn = {**DIAGRAMS, **RUNS, **LABS}
    unknown = [n for n in names if n not in drawn and n not in PREDICTED]
    if unknown:
        print(
            f"no figure {unknown[0]!r}; there are {', '.join([*drawn, *PREDICTED])}",
            file=sys.stderr,
        )
        return 2
    facts = json.loads(FACTS.read_text("utf-8")) if FACTS.is_file() else {}
    for name, draw in drawn.items():
        if not names or name in names:
            (HERE / f"{name}.svg").write_bytes(draw().svg().encode())
    for name, predict in PREDICTED.items():
        if not names or name in names:
            drawing, said = predict()
            facts[name] = {k: round(v, 3) for k, v in said.items()}
            (HERE / f"{name}.svg").write_bytes(drawing.svg().encode())
    FACTS.write_bytes((json.dumps(facts, indent=1, sort_keys=True) + "\n").encode())
    print(f"wrote {', '.join(names or [*drawn, *PREDICTED])} to {HERE.name}/")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
