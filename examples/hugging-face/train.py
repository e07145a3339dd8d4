"""A Hugging Face Trainer: a small GPT-2, made from its configuration, learns to count. Options are its own."""

import os

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, HfArgumentParser, Trainer, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

VOCABULARY, LENGTH = 32, 16


class Counting(Dataset[dict[str, torch.Tensor]]):
    """Sequence number i counts up by one from i, modulo the vocabulary."""

    def __len__(self) -> int:
        return 512

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = (torch.arange(LENGTH) + index) % VOCABULARY
        return {"input_ids": tokens, "labels": tokens}


def main() -> None:
    """Train; go on from the newest checkpoint in the output folder, where there is one."""
    arguments = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()[0]
    # what `nodectl launch --checkpoint` hands over outlives the job; a folder of the code's own goes with it
    arguments.output_dir = os.environ.get("NODECTL_CHECKPOINT_DIR") or arguments.output_dir
    config = GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=LENGTH,
        n_embd=64,
        n_layer=2,
        n_head=2,
        bos_token_id=0,
        eos_token_id=0,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
    )
    trainer = Trainer(model=GPT2LMHeadModel(config), args=arguments, train_dataset=Counting())
    last = get_last_checkpoint(arguments.output_dir) if os.path.isdir(arguments.output_dir) else None
    trainer.train(resume_from_checkpoint=last)


if __name__ == "__main__":
    main()
