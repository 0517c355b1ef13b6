"""Default time limits of runs. `softlook train --help` shows them without importing torch."""

DEFAULT_MINUTES = {"cpu": 5.0, "mps": 10.0, "cuda": 10.0}
"""Minutes that sizes are selected for by default; on a CPU they are also the limit."""
