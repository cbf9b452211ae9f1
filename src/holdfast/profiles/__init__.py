"""Profiles of live runs: where a step's time goes, by JAX's or PyTorch's own profiler."""
