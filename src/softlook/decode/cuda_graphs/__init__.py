"""Decoding on a GPU: one CUDA graph per step, with static buffers and Triton kernels."""
