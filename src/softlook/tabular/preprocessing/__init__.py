"""Preprocessing: columns to model inputs, and targets."""
