"""Text tasks: training, evaluation and data preparation."""
