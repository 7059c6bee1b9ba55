"""CUDA kernels of the native engine, compiled by nvcc at first use."""
