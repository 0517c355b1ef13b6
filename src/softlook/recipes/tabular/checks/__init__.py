"""Checks of a table before training."""
