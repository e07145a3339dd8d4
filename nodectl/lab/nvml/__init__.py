"""A simulated NVML under NVIDIA's own nvidia-smi: the library in C, its build, and the state that it answers from."""
