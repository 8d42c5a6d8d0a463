"""Kernels for CUDA GPUs, compiled by Numba, and the arrays that they keep on the GPU."""
