"""A profile with the real trace of a real kernel and invented, plausible times."""
from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from nkisim import hw
from nkisim.launch import launch
from nkisim.report.document import DMA, ENGINES

SEGMENT = np.dtype([("engine", "i1"), ("start_us", "f8"), ("end_us", "f8"), ("instr", "i4"),
                    ("bytes", "i4")])


def synthetic(kernel, *args, target="trn2", **kwargs):
    """Return something with the attributes of nkisim.profile's result."""
    run = launch(kernel, args, kwargs, target=target, compute=False)
    trace, core = run.trace, hw.get(target)
    n = len(trace)
    start, end, issue = np.zeros(n), np.zeros(n), np.zeros(n)
    engine, queue = np.zeros(n, np.int8), np.full(n, -1, np.int8)
    kinds, lines, nodes, pred = (np.zeros(n, np.int32) for _ in range(4))
    free = np.zeros(len(ENGINES))
    ring = np.zeros(16)
    writer: dict[int, int] = {}
    made: dict[int, list[float]] = {}
    segments = []
    for i, (kind, line, node, operands) in enumerate(trace):
        e = ENGINES.index(kind.engine)
        kinds[i], lines[i], nodes[i], engine[i] = trace.rows[trace.starts[i]], line, node, e
        waits = [writer[s] for s, _ in operands if s in writer]
        pred[i] = max(waits, key=lambda w: end[w], default=-1)
        ready = end[pred[i]] if pred[i] >= 0 else 0.0
        size = max(p.elements // p.shape[0] for p in kind.operands)
        if e == DMA:
            queue[i] = 4
            issue[i] = free[4] = max(free[4] + 0.08, ready)
            total = kind.operands[0].nbytes
            begin = np.maximum(ring, issue[i] + 1.5)
            ring = begin + 0.005 + total / 16 / 27200
            start[i], end[i] = begin.min(), ring.max() + 0.4
            segments += [(k, begin[k], ring[k], i, total // 16) for k in range(16)]
        else:
            issue[i] = free[e]
            start[i] = max(free[e], ready + 0.03)
            end[i] = free[e] = start[i] + 0.1 + size / 1000
        for k, (s, _) in enumerate(operands):
            if k < kind.outputs:
                writer[s] = i
            if kind.operands[k].kind != "hbm":
                life = made.setdefault(s, [start[i], end[i], 0, kind.operands[k].kind, line])
                life[1] = max(life[1], end[i])
                life[2] = max(life[2], kind.operands[k].nbytes // kind.operands[k].shape[0])
    lifetimes = {"storage": np.array(list(made), np.int64)}
    for k, name in enumerate(("first_us", "last_us", "bytes_per_partition")):
        lifetimes[name] = np.array([v[k] for v in made.values()])
    lifetimes["line"] = np.array([v[4] for v in made.values()], np.int64)
    latency = float(end.max()) + 9.7 if n else 9.7
    counts = trace.counts()
    flops = 0.0
    return SimpleNamespace(
        kernel_name=getattr(kernel, "__name__", "kernel"), hw=core, trace=trace,
        machine=run.machine, findings=run.findings, outputs=None, latency_us=latency,
        body_us=latency - 9.7, profile_total_us=latency + 5, bound="dma", flops=flops, mfu=0.0,
        engine_busy={name: min(1.0, float(np.sum((end - start)[engine == k])) / latency)
                     for k, name in enumerate(ENGINES)},
        hbm_read_bytes=run.hbm_read_bytes, hbm_write_bytes=run.hbm_write_bytes,
        dma_transfer_count=sum(c for k, c in counts.items() if trace.kinds[k].engine == "dma"),
        instructions=run.instructions, sbuf_peak_bytes=0, psum_peak_banks=0,
        timeline=SimpleNamespace(start_us=start, end_us=end, issue_us=issue, engine=engine,
                                 queue=queue, kind=kinds, line=lines, node=nodes, pred=pred,
                                 dma_segments=np.array(segments, SEGMENT)),
        memory=_memory(made, lifetimes))


def _memory(made, lifetimes):
    steps = [(0.0, 0, 0)]
    for first, last, size, kind, _ in made.values():
        sbuf, psum = (size, 0) if kind == "sbuf" else (0, -(-size // 2048))
        steps += [(first, sbuf, psum), (last, -sbuf, -psum)]
    at = np.array(sorted(steps))
    return SimpleNamespace(time_us=at[:, 0], sbuf_bytes=np.cumsum(at[:, 1]),
                           psum_banks=np.cumsum(at[:, 2]), lifetimes=lifetimes)
