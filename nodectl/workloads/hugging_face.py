"""Causal language models of Hugging Face, where transformers is installed; from a folder it needs no network."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import nn


def model(name: str, vocabulary: int, *, pretrained: bool) -> nn.Module:
    """Return the model of that name or folder, with the weights that lie there or new ones.

    SystemExit where transformers or the model is not there, or where its vocabulary is below `vocabulary`.
    """
    try:
        transformers: Any = importlib.import_module("transformers")
    except ImportError as error:
        raise SystemExit(
            f"--hf {name} needs the package transformers, which this Python lacks ({error}): add it to the stack, "
            "or leave --hf out to train the workload's own decoder"
        ) from error
    if name.startswith((".", "/", "~")) and not (Path(name).expanduser() / "config.json").is_file():
        raise SystemExit(f"--hf {name}: no config.json in this folder, which must be on every host")
    where = str(Path(name).expanduser()) if name.startswith("~") else name
    try:
        config: Any = transformers.AutoConfig.from_pretrained(where)
        config.use_cache = False
        if config.vocab_size < vocabulary:
            raise SystemExit(f"--hf {name}: its {config.vocab_size} tokens are fewer than the text's {vocabulary}")
        if pretrained:
            made: nn.Module = transformers.AutoModelForCausalLM.from_pretrained(where, config=config)
        else:
            made = transformers.AutoModelForCausalLM.from_config(config)
    except (OSError, ValueError, KeyError) as error:
        reason = str(error).strip().splitlines()[0].rstrip(".")
        raise SystemExit(
            f"--hf {name}: {reason}: a host without a network needs the folder that holds the model's config.json"
        ) from error
    made.train()
    return made


def blocks(model: nn.Module) -> Sequence[nn.Module]:
    """Return the longest list of as many modules as the configuration has layers; SystemExit if there is none."""
    layers = _configured(model, "num_hidden_layers")
    for module in model.modules():
        if type(module).__name__ == "ModuleList" and len(module) == layers:
            return tuple(module)
    raise SystemExit(f"--hf: {type(model).__name__} has no list of its {layers} layers")


def flops_per_token(model: nn.Module, length: int) -> float:
    """6N without the table of tokens that is only looked up, and 12 x layers x hidden x length for attention."""
    parameters = sum(each.numel() for each in model.parameters())
    tied = bool(getattr(model.config, "tie_word_embeddings", False))
    looked_up = 0 if tied else model.get_input_embeddings().weight.numel()
    attention = 12 * _configured(model, "num_hidden_layers") * _configured(model, "hidden_size") * length
    return float(6 * (parameters - looked_up) + attention)


def _configured(model: nn.Module, name: str) -> int:
    return int(getattr(model.config, name))
