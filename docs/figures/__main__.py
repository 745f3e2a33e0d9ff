"""Write all figures, or the named ones: `python -m docs.figures [NAME ...]`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from .diagrams import DIAGRAMS
from .predicted import PREDICTED

HERE = Path(__file__).parent
#: what the latency model said when the figures of profiles were drawn, in us or 10^12/s
FACTS = HERE / "predicted.json"


def main(names: list[str]) -> int:
    """Write the figures; return 2 for a name that there is not."""
    unknown = [n for n in names if n not in DIAGRAMS and n not in PREDICTED]
    if unknown:
        print(
            f"no figure {unknown[0]!r}; there are {', '.join([*DIAGRAMS, *PREDICTED])}",
            file=sys.stderr,
        )
        return 2
    facts = json.loads(FACTS.read_text("utf-8")) if FACTS.is_file() else {}
    for name, draw in DIAGRAMS.items():
        if not names or name in names:
            (HERE / f"{name}.svg").write_bytes(draw().svg().encode())
    for name, predict in PREDICTED.items():
        if not names or name in names:
            drawing, said = predict()
            facts[name] = {k: round(v, 3) for k, v in said.items()}
            (HERE / f"{name}.svg").write_bytes(drawing.svg().encode())
    FACTS.write_bytes((json.dumps(facts, indent=1, sort_keys=True) + "\n").encode())
    print(f"wrote {', '.join(names or [*DIAGRAMS, *PREDICTED])} to {HERE.name}/")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
