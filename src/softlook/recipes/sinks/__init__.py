"""Where a run's numbers go, beside its own folder: TensorBoard, MLflow, Weights & Biases, trackio. One file each."""
