"""The parts of `benchmarks.gpu_speed` and their titles, and the kinds of kernels in a training step."""

TITLES = {
    "errors": "Errors",
    "packed": "Packed documents",
    "window": "Windows",
    "bias": "Position biases",
    "calls": "Small calls",
    "short": "Short sequences",
    "top": "Kernels of top keys",
    "look": "Looking",
    "look_long": "Looking at long sequences",
    "rollout": "Rollout",
    "bert": "Ragged texts",
    "tables": "Tables",
}
KERNEL_KINDS = {
    "matrix products": ("nvjet", "splitK", "gemm"),
    "attention": ("sdpa", "cudnn"),
    "clipping and AdamW": ("multi_tensor",),
    "cross entropy": ("cross_entropy",),
}
