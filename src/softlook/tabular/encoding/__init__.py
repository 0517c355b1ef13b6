"""From cells to tensors and back: what columns are, what a model reads of them, and what is wanted of it."""
