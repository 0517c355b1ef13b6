"""Batches: order, length buckets, collation, masking, prefetching."""
