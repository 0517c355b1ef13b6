"""Rows without labels: what can be learned from them, and how few labels go on from there."""
