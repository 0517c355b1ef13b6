"""Inference engine: queue, schedulers, batches and KV cache."""
