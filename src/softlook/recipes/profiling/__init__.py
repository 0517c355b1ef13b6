"""Step time and memory measurements before training."""
