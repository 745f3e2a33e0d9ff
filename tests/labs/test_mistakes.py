"""A mistake of a kernel is named: what the labs declare in mistakes.py, and what they don't."""
from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from labkit import AnyArgmax, make_inputs
from labkit.evaluate import FAILED, PASSED, References, evaluate, judge
from labkit.inputs import dtype_of
from labkit.load import load_lab, load_module
from labkit.mistakes import Mistakes

LABS = Path(__file__).parents[2] / "labs"
LOADED = {name: load_lab(LABS / name) for name in ("vecadd", "ffnn", "conv2d")}
CONV = load_module(LABS / "conv2d" / "spec.py", "conv2d_spec_of_mistakes").conv_case
FFNN = load_module(LABS / "ffnn" / "spec.py", "ffnn_spec_of_mistakes")

#: By reference function: a case whose output tells its mistakes apart.
CASES = {
    "vecadd": {"add": LOADED["vecadd"].case("tiled_25600_rows128"),
               "transpose": LOADED["vecadd"].case("transpose_128x128")},
    "ffnn": {"transpose": FFNN.transpose_case(256, 256),
             "matmul": FFNN.matmul_case("tiled", 384, 256, 512),
             "relu": FFNN.bias_case("relu", 256, 512),
             "softmax": FFNN.bias_case("softmax", 256, 512),
             "forward": LOADED["ffnn"].case("forward_small"),
             "predict": LOADED["ffnn"].case("predict_small_tiled")},
    "conv2d": {"conv": CONV("conv", 2, 384, 256, 3, 12, 14),
               "square": CONV("square", 1, 256, 256, 3, 9, 9),
               "pool": CONV("pool", 2, 128, 256, 2, 13, 15, "float16", pool=2)},
}
DECLARED = [(lab, key, mistake) for lab, cases in CASES.items() for key, case in cases.items()
            for mistake in Mistakes.load(LABS / lab).of[case.reference]]


def verdict(lab: str, case, outputs: tuple) -> object:
    """Return the judgement of outputs as those of a kernel."""
    references = References(load_module(LABS / lab / "reference.py"), LOADED[lab].seed)
    return judge(case, "trn2", {"outputs": outputs}, references.of(case), references)


@pytest.mark.parametrize("lab, key, mistake", [
    pytest.param(*row, id=f"{row[0]}-{row[1]}-{row[2].says[:60]}") for row in DECLARED])
def test_what_is_declared_is_named(lab, key, mistake):
    """The output of each mistake, of the whole case and in its dtype, gets that sentence."""
    case = CASES[lab][key]
    right = getattr(load_module(LABS / lab / "reference.py"), case.reference)
    inputs = make_inputs(case, LOADED[lab].seed)
    with np.errstate(all="ignore"):
        wrong = mistake.output(right, *inputs, **case.kwargs)
    if wrong is None:
        pytest.skip("not possible with these inputs")
    if case.output_dtype == "int32":
        scores = wrong.scores if isinstance(wrong, AnyArgmax) else wrong
        wrong = scores.argmax(axis=1)
    wrong = np.nan_to_num(wrong).astype(dtype_of(case.output_dtype or case.inputs[0].dtype))
    outcome = verdict(lab, case, (wrong,))
    if outcome.status == PASSED:
        pytest.skip("gives what is right with these inputs")
    assert mistake.says in outcome.detail, outcome.detail
