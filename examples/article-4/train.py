"""The training of article 004: a causal language model by DeepSpeed. README.md says what is otherwise, and why."""

import argparse
import json
import time
from pathlib import Path

import deepspeed
import torch
from torch import distributed
from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig
from transformers.integrations import HfDeepSpeedConfig

WARM_UP = 5


def options() -> argparse.Namespace:
    """Return the options of the article's launch script; a batch size follows from the file where none is given."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--deepspeed", type=Path, required=True)
    parser.add_argument("--model_name", help="name or folder; without it a small one is made from its configuration")
    parser.add_argument("--batch_size", type=int, help="samples of an update, over all ranks")
    parser.add_argument("--gradient_accumulation", type=int)
    parser.add_argument("--learning_rate", type=float)
    parser.add_argument("--fp16", action="store_true", default=None)
    parser.add_argument("--sequence", type=int, default=128)
    parser.add_argument("--steps", type=int, default=20, help="updates")
    parser.add_argument("--local_rank", type=int, help="DeepSpeed's launcher gives it; LOCAL_RANK says the same")
    return parser.parse_args()


def configuration(given: argparse.Namespace) -> dict:
    """Return the file's; SystemExit where an option says otherwise: one of the two would go unheard."""
    config = json.loads(given.deepspeed.read_text())
    both = {
        "--batch_size": (given.batch_size, config["train_batch_size"]),
        "--gradient_accumulation": (given.gradient_accumulation, config["gradient_accumulation_steps"]),
        "--learning_rate": (given.learning_rate, config["optimizer"]["params"]["lr"]),
        "--fp16": (given.fp16, config.get("fp16", {}).get("enabled", False)),
    }
    wrong = [f"{name} {said}, the file {filed}" for name, (said, filed) in both.items() if said not in (None, filed)]
    if wrong:
        raise SystemExit(f"{given.deepspeed} and the options differ: {'; '.join(wrong)}")
    return config


def model(name: str | None, config: dict, sequence: int) -> torch.nn.Module:
    """In the parts of each rank from the beginning where the stage is 3; never device_map, which is for one process."""
    if name:
        partitioned = HfDeepSpeedConfig(config)  # from_pretrained asks for it while it lives
        loaded = AutoModelForCausalLM.from_pretrained(name)
        del partitioned
        return loaded
    made = LlamaConfig(
        vocab_size=256, hidden_size=64, intermediate_size=172, num_hidden_layers=4, num_attention_heads=4,
        max_position_embeddings=sequence,
    )  # fmt: skip
    with deepspeed.zero.Init(config_dict_or_path=config, enabled=config["zero_optimization"]["stage"] == 3):
        return AutoModelForCausalLM.from_config(made)


def main() -> None:
    """Train on numbers that count up; rank 0 says loss and tokens/s, of all ranks, without the first updates."""
    given = options()
    config = configuration(given)
    deepspeed.init_distributed()
    torch.manual_seed(0)
    whole = model(given.model_name, config, given.sequence)
    engine, _, _, _ = deepspeed.initialize(model=whole, model_parameters=whole.parameters(), config=config)
    rank, world = distributed.get_rank(), distributed.get_world_size()
    words = AutoConfig.from_pretrained(given.model_name).vocab_size if given.model_name else 256
    accumulation, micro = engine.gradient_accumulation_steps(), engine.train_micro_batch_size_per_gpu()
    if rank == 0:
        print(
            f"{world} ranks, train batch {engine.train_batch_size()}: {micro} micro x {accumulation} accumulation",
            flush=True,
        )
    chance = torch.Generator().manual_seed(1 + rank)
    begun = time.perf_counter()
    for step in range(1, given.steps + 1):
        for _ in range(accumulation):
            first = torch.randint(words, (micro, 1), generator=chance)
            tokens = ((first + torch.arange(given.sequence)) % words).to(engine.device)
            loss = engine(tokens, labels=tokens, use_cache=False).loss
            engine.backward(loss)
            engine.step()
        if step == WARM_UP:
            deepspeed.get_accelerator().synchronize()
            begun = time.perf_counter()
        if rank == 0 and (step == 1 or step % 10 == 0):
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    deepspeed.get_accelerator().synchronize()
    done = (given.steps - WARM_UP) * engine.train_batch_size() * given.sequence
    if rank == 0 and done > 0:
        print(f"{done / (time.perf_counter() - begun):.1f} tokens/s on synthetic tokens", flush=True)
    distributed.barrier()
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
