"""Self-supervised pretraining on unlabelled rows."""
