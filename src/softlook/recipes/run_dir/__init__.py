"""The run directory: layout, metrics, samples and report."""
