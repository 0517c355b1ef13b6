"""Shared basics: errors, shapes, tensors, memory, version."""
