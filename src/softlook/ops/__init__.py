"""The operation: pure functions from tensors to tensors, no parameters."""
