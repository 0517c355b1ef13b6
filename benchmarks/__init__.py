"""What softlook costs, measured beside its peers. `python -m benchmarks` runs it all and writes docs/benchmarks."""
