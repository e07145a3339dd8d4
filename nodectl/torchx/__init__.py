"""TorchX's way to nodectl's jobs: `torchx run -s nodectl …`; needs the torchx package, and nothing else here does."""
