"""The real nvidia-smi, and a simulated NVML for it: `python -m scripts.nvml` fetches and builds both."""
