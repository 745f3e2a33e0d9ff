"""From `neuronxcc.nki` to `import nki`: kernels rewritten with what a run of them has shown."""
