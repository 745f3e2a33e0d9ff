"""A user's script from before modules moved: all that is public, called as people call it."""

import sys

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np

import nkisim  # before neuronxcc: it serves it where the SDK is absent


@nki.jit
def scale(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(x.shape[0] // 128):
        t = nl.load(x[i * 128 : (i + 1) * 128])
        nl.store(out[i * 128 : (i + 1) * 128], nisa.tensor_scalar(t, np.multiply, 2.0))
    return out


x = np.random.default_rng(0).random((256, 64), np.float32)
assert np.array_equal(nkisim.simulate(scale, x, target="trn2"), 2 * x)
assert np.array_equal(nki.simulate_kernel(scale, x), 2 * x)
assert np.array_equal(scale(x), 2 * x)

run = nkisim.run(scale, x)
assert isinstance(run, nkisim.Run) and all(f.id and f.severity and str(f) for f in run.findings)
assert {f.id for f in nkisim.check(scale, x)} == {f.id for f in run.findings}

p = nkisim.profile(scale, x, target="trn2", compute=True, descriptors=None)
assert isinstance(p, nkisim.Profile) and np.array_equal(p.outputs, 2 * x)
assert 0 < p.body_us <= p.latency_us and p.profile_total_us > 0 and p.bound
assert set(p.engine_busy) >= {"tensor", "vector", "scalar", "gpsimd", "sync", "dma"}
assert p.flops is not None and p.mfu >= 0
assert p.hbm_read_bytes >= x.nbytes and p.hbm_write_bytes >= x.nbytes
assert p.dma_transfer_count and p.sbuf_peak_bytes and p.psum_peak_banks == 0
assert sum(p.instructions.values()) >= 4 and isinstance(p.findings, list)
assert "predicted" in p.summary() and p.to_dict()["latency_us"] == p.latency_us
p.save_json("profile.json"), p.save_html("profile.html"), p.save_perfetto("profile.pftrace")
assert nkisim.profile(scale, x, compute=False).outputs is None

benchmarked = nki.benchmark(warmup=1, iters=2, save_neff_name="a.neff")(scale)
benchmarked(x)
assert benchmarked.benchmark_result.nc_latency.get_latency_percentile(50) > 0

try:
    nkisim.simulate(scale, np.zeros((256, 64), np.float64)), nl.zeros((129, 1), nl.float32)
except nkisim.NkiError as error:
    assert error.id and str(error)
assert {"trn1", "trn2"} <= set(nkisim.TARGETS) and nkisim.rows()
print("as before", sys.argv[1:])
