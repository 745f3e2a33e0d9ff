"""Grading strangers' kernels: sandbox, judge, reports (docs/grading.md says how it is safe)."""
