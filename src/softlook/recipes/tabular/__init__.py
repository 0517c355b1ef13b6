"""Training runs on tables: data, estimator, checkpoints, scores, prediction."""
