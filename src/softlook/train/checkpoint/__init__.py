"""Checkpoints of a run: training state, manager, run directory."""
