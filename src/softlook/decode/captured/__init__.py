"""Decoding on a GPU: a model's steps as a plan of plain sums, in fixed places, captured as one graph for each word."""
