"""Training: model size, train step, evaluation, retrieval."""
