"""Compiled loops: the compiler and its cache, threads, vectors, and the arithmetic that kernels and engines share."""
