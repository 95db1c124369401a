"""Benchmarks of ours beside the peers, on one machine in one run.

`python -m sparkdl_bench.bench SUITE`, or `sparkdl-bench bench SUITE`: one suite is one file of `benchmarks/suites` in
a checkout, found by scanning; the wheel has none. Measuring (`contestant`), running trials in turn (`trials`), keeping
samples (`store`) and showing them (`table`) are apart. docs/performance.md says how to read the results.
"""
