"""Makes the checkpoints of this folder with Composer 0.32; see README.md for how to run it.

It does not use this repository: `composer` is the original library here. Beside the checkpoints
goes what the trained models themselves said, so that the tests have a truth of their own.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import torch
from peft import LoraConfig
from tokenizers import Tokenizer, models, pre_tokenizers
from torch.utils.data import DataLoader
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from composer import Trainer
from composer.models import HuggingFaceModel

TARGET = Path(__file__).resolve().parent
SENTENCE = "the small dog saw a large cat near the old house"
WORDS = [
    "the",
    "a",
    "small",
    "large",
    "old",
    "new",
    "dog",
    "cat",
    "house",
    "tree",
    "saw",
    "heard",
    "near",
    "under",
    "and",
    "ran",
    "slept",
    "then",
    "they",
    "it",
]


def tokenizer() -> PreTrainedTokenizerFast:
    specials = ["<unk>", "<pad>", "<end>"]
    vocabulary = {word: i for i, word in enumerate([*specials, *WORDS])}
    plain = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    plain.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=plain, unk_token="<unk>", pad_token="<pad>", eos_token="<end>"
    )


def network() -> GPT2LMHeadModel:
    torch.manual_seed(5)
    config = GPT2Config(
        vocab_size=24, n_positions=16, n_embd=16, n_layer=2, n_head=2, bos_token_id=2,
        eos_token_id=2, pad_token_id=1, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    )  # fmt: skip
    return GPT2LMHeadModel(config)


def train(model: HuggingFaceModel, name: str, rate: float) -> None:
    generator = torch.Generator().manual_seed(7)
    rows = torch.randint(3, 23, (8, 10), generator=generator)
    data = [
        {"input_ids": row, "labels": row, "attention_mask": torch.ones_like(row)} for row in rows
    ]
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            model=model,
            train_dataloader=DataLoader(data, batch_size=4),
            optimizers=torch.optim.AdamW(
                [p for p in model.parameters() if p.requires_grad], lr=rate
            ),
            max_duration="3ep",
            save_folder=folder,
            save_filename=name,
            save_interval="3ep",
            save_weights_only=True,
            save_overwrite=True,
            device="cpu",
            progress_bar=False,
        )
        trainer.fit()
        (TARGET / name).write_bytes((Path(folder) / name).read_bytes())


def logits(model: torch.nn.Module, ids: torch.Tensor) -> list[list[float]]:
    with torch.no_grad():
        return model.eval()(input_ids=ids).logits[0].tolist()


def main() -> None:
    words = tokenizer()
    ids = words(SENTENCE, return_tensors="pt")["input_ids"]
    whole = HuggingFaceModel(network(), tokenizer=words)
    train(whole, "whole.pt", 1e-2)
    told = {"sentence": SENTENCE, "ids": ids[0].tolist(), "whole": logits(whole.model, ids)}
    lora = LoraConfig(r=2, target_modules=["c_attn"], task_type="CAUSAL_LM", fan_in_fan_out=True)
    adapted = HuggingFaceModel(whole.model, tokenizer=words, peft_config=lora)
    train(adapted, "adapter.pt", 5e-2)
    told["adapter"] = logits(adapted.model, ids)
    (TARGET / "truth.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main()
