"""Attention and related operations: pure functions of tensors."""
