"""The language model program: a decoder, or a model of Hugging Face, trained on the bytes of a text.

Run it under torchrun over many hosts, or by itself. The last line of rank 0 is a JSON summary.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    import torch
    from torch import nn

    from nodectl.workloads import decoder, layout, options, pytorch, texts
    from nodectl.workloads.meaning import Rule
    from nodectl.workloads.settings import Settings, at_least
    from nodectl.workloads.workload import Batch, Data, Workload
else:  # on a node these files lie in one folder, without the package
    import decoder
    import layout
    import options
    import pytorch
    import texts
    from meaning import Rule
    from pytorch import nn, torch
    from settings import at_least
    from workload import Workload

_ARTICLE = {
    "hidden": 4096,
    "intermediate": 11008,
    "heads": 32,
    "layers": 48,
    "vocabulary": 50257,
    "positions": 2048,
    "seq": 2048,
    "precision": "fp16",
    "optimizer": "adamw",
    "lr": 6e-5,
    "weight_decay": 0.01,
    "epochs": 3,
    "log_every": 10,
    "checkpoint_every": 1000,
}
# the article's second table row has 8 samples over two cards; its third, a pipeline, has 12 in the one copy
_ROWS = {
    "article-4": {"batch": 1, "accumulation": 4},
    "article-4-row-1": {"batch": 4, "accumulation": 8},
    "article-4-row-2": {"batch": 4, "accumulation": 4},
    "article-4-row-3": {"batch": 12, "accumulation": 2, "stages": 3},
    "article-4-row-4": {"batch": 16, "accumulation": 1},
}
# what a model of Hugging Face has by its own configuration
_OWN_MODEL = (
    "layers",
    "hidden",
    "intermediate",
    "heads",
    "vocabulary",
    "positions",
    "mlp",
    "norm",
    "tied",
    "attention",
)
_REFUSED_ROW = "article-4-row-4"


class LanguageModel(Workload):
    """The next token by a decoder; the loss is the cross-entropy in nats."""

    name = "llm"
    summary = "Train a decoder to continue a text, byte by byte."
    unit = "tokens"
    presets = {name: {**_ARTICLE, **row} for name, row in _ROWS.items()}  # noqa: RUF012 (nobody changes it)
    defaults = {"batch": 8, "optimizer": "adamw", "epochs": 1}  # noqa: RUF012

    rules = (
        Rule(("pretrained",), "--hf: only models of Hugging Face have weights to begin with", lambda at: at["hf"]),
        Rule(_OWN_MODEL, "the program's own decoder, without --hf", lambda at: at["hf"] is None),
        Rule(("samples",), "made-up samples, without --text", lambda at: at["text"] is None),
    )

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add the options of the model's sizes, of attention, and of the text."""
        parser.add_argument("--layers", type=at_least(1), default=4, help="decoder layers")
        parser.add_argument("--hidden", type=at_least(2), default=128, help="width of the model")
        parser.add_argument("--intermediate", type=at_least(1), default=344, help="width within the MLP")
        parser.add_argument("--heads", type=at_least(1), default=4, help="attention heads")
        parser.add_argument("--vocabulary", type=at_least(texts.VOCABULARY), default=texts.VOCABULARY, help="tokens")
        parser.add_argument("--positions", type=at_least(1), default=2048, help="longest sequence of the model")
        parser.add_argument("--seq", type=at_least(1), default=128, help="tokens in a sample")
        parser.add_argument("--mlp", choices=decoder.MLPS, default="gated", help="three matrices or two")
        parser.add_argument("--norm", choices=decoder.NORMS, default="rms", help="RMSNorm or LayerNorm")
        parser.add_argument("--tied", action="store_true", help="one table for input and output")
        fused = _has_fused()
        parser.add_argument(
            "--attention",
            choices=decoder.ATTENTIONS,
            default="fused" if fused else "chunked",
            help="by torch's kernels; all scores at once; 256 queries at a time",
        )
        parser.add_argument("--text", type=Path, help="folder of files to train on; none: a made-up text")
        parser.add_argument("--hf", help="a model of Hugging Face by name, or the folder of its config.json")
        parser.add_argument("--pretrained", action="store_true", help="with the weights that lie with --hf")
        parser.add_argument("--count", action="store_true", help="print how many parameters it has, and end")

    def check(self, settings: Settings) -> None:
        """Sizes that fit each other."""
        options = settings.own
        if settings.preset == _REFUSED_ROW and settings.batch == _ROWS[_REFUSED_ROW]["batch"]:
            raise ValueError(
                f"--preset {_REFUSED_ROW}: a batch of 16 with accumulation 1 cannot be shared among its 3 cards "
                "(train batch = micro-batch x accumulation x ranks, DeepSpeed's rule, and 16 is no multiple of 3): "
                "give --batch for one card"
            )
        if options.seq > options.positions and options.hf is None:
            raise ValueError(
                f"--seq {options.seq} is longer than --positions {options.positions}, the longest that it takes"
            )
        if options.attention == "fused" and not _has_fused():
            raise ValueError(f"--attention fused needs torch 2.0 (this is {torch.__version__}): take plain or chunked")
        self.sizes(settings).check()

    def sizes(self, settings: Settings) -> decoder.Sizes:
        """Return the sizes of the workload's own decoder."""
        options = settings.own
        return decoder.Sizes(
            options.vocabulary,
            options.hidden,
            options.intermediate,
            options.heads,
            options.layers,
            options.positions,
            options.mlp,
            options.norm,
            options.tied,
        )

    def divisible(self, settings: Settings) -> layout.Divisible | None:
        """Return what tensor and pipeline parallelism share; nothing of a model that others have written."""
        options = settings.own
        if options.hf is not None:
            return None
        return layout.Divisible(options.heads, options.intermediate, options.seq, options.layers, options.tied)

    def identity(self, settings: Settings) -> dict[str, Any]:
        """Return the sizes, or the foreign model's name."""
        options = settings.own
        return {"hf": options.hf} if options.hf is not None else dict(vars(self.sizes(settings)))

    def data(self, settings: Settings) -> Data:
        """Pieces of a text."""
        return texts.read(settings.own.text, settings.own.seq, settings.samples, settings.seed)

    def model(self, settings: Settings) -> nn.Module:
        """Return a decoder with its first values, or without any on the meta device."""
        options = settings.own
        if options.hf is not None:
            return _hf_model(options.hf, texts.VOCABULARY, pretrained=options.pretrained)
        model = decoder.Decoder(self.sizes(settings), options.attention)
        for name, parameter in model.named_parameters():
            if not parameter.is_meta:
                with torch.no_grad():
                    parameter.copy_(decoder.initial(name, parameter.shape, options.layers, settings.seed))
        return model

    def values(self, settings: Settings, name: str, shape: Sequence[int]) -> torch.Tensor | None:
        """Return the first values of one parameter."""
        if settings.own.hf is not None:
            return None
        return decoder.initial(name, shape, settings.own.layers, settings.seed)

    def loss(self, answer: Any, batch: Batch) -> torch.Tensor:
        """Cross-entropy, mean over all tokens."""
        logits = getattr(answer, "logits", answer)
        loss: torch.Tensor = nn.functional.cross_entropy(logits.float().flatten(0, 1), batch[-1].flatten())
        return loss

    def blocks(self, model: nn.Module) -> Sequence[nn.Module]:
        """Return the decoder's layers."""
        return tuple(model.layers.values()) if isinstance(model, decoder.Decoder) else _hf_blocks(model)

    def units_per_sample(self, settings: Settings) -> int:
        """Tokens."""
        return int(settings.own.seq)

    def flops_per_sample(self, settings: Settings, model: nn.Module) -> float:
        """6N and the attention scores, for each token."""
        options = settings.own
        if options.hf is not None:
            return float(options.seq * _hf_flops_per_token(model, options.seq))
        return float(options.seq * decoder.flops_per_token(self.sizes(settings), options.seq))

    def repeated_flops_per_sample(self, settings: Settings, model: nn.Module) -> float | None:
        """Return the layers' forward pass: 8N instead of 6N."""
        options = settings.own
        if options.hf is not None:
            return None
        twice = decoder.flops_per_token(self.sizes(settings), options.seq, recompute=True)
        return float(options.seq * twice - self.flops_per_sample(settings, model))


def _has_fused() -> bool:
    """Return whether torch has its kernels for attention; without a torch, what a newer one has counts."""
    return torch is None or hasattr(nn.functional, "scaled_dot_product_attention")


def count(settings: Settings) -> str:
    """How large the model is, without making it; one line of JSON."""
    workload = LanguageModel()
    if settings.own.hf is not None:
        pytorch.need()
        with torch.device("meta"):
            model = workload.model(settings)
        parameters = sum(parameter.numel() for parameter in model.parameters())
        flops = _hf_flops_per_token(model, settings.own.seq)
    else:
        parameters = workload.sizes(settings).parameters
        flops = decoder.flops_per_token(workload.sizes(settings), settings.own.seq)
    answer = {
        "workload": workload.name,
        "preset": settings.preset,
        "params": parameters,
        "seq": settings.own.seq,
        "model_flops_per_token": flops,
    }
    return json.dumps({**answer, **workload.identity(settings)})


def main() -> None:
    """Train, or only count."""
    workload = LanguageModel()
    settings = options.parse(workload)
    if not settings.own.count:
        options.start(workload)
    elif os.environ.get("RANK", "0") == "0":
        sys.stdout.write(f"{count(settings)}\n")


def _hf_model(name: str, vocabulary: int, *, pretrained: bool) -> nn.Module:
    """Return the Hugging Face model of that name or folder, with the weights that lie there or new ones.

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


def _hf_blocks(model: nn.Module) -> Sequence[nn.Module]:
    """Return the longest list of as many modules as the configuration has layers; SystemExit if there is none."""
    layers = _configured(model, "num_hidden_layers")
    for module in model.modules():
        if type(module).__name__ == "ModuleList" and len(module) == layers:
            return tuple(module)
    raise SystemExit(f"--hf: {type(model).__name__} has no list of its {layers} layers")


def _hf_flops_per_token(model: nn.Module, length: int) -> float:
    """6N without the table of tokens that is only looked up, and 12 x layers x hidden x length for attention."""
    parameters = sum(parameter.numel() for parameter in model.parameters())
    tied = bool(getattr(model.config, "tie_word_embeddings", False))
    looked_up = 0 if tied else model.get_input_embeddings().weight.numel()
    attention = 12 * _configured(model, "num_hidden_layers") * _configured(model, "hidden_size") * length
    return float(6 * (parameters - looked_up) + attention)


def _configured(model: nn.Module, name: str) -> int:
    return int(getattr(model.config, name))


if __name__ == "__main__":
    main()
