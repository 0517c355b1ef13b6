"""Benchmarks of softlook and its alternatives. `python -m benchmarks` runs them and writes docs/benchmarks."""
