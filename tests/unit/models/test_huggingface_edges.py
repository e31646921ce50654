"""Ties, types, ignored labels, damaged files and wrong arguments of models of Hugging Face."""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
import transformers
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from composer.core.data_spec import default_split_batch
from composer.models import (
    HuggingFaceModel,
    create_bert_classification,
    create_bert_mlm,
    create_gpt2,
    write_huggingface_pretrained_from_composer_checkpoint,
)
from composer.models.export import export_model
from composer.models.huggingface import get_hf_config_from_composer_state_dict
from composer.models.huggingface._doors import transformers_before_5
from composer.models.huggingface.adapters import quiet_peft
from composer.models.huggingface.tokenizer import load_tokenizer, write_tokenizer_files

export = write_huggingface_pretrained_from_composer_checkpoint
read = HuggingFaceModel.hf_from_composer_checkpoint
IDS = torch.tensor([[3, 4, 5, 6], [7, 8, 9, 3]])


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    # peft's own loaders read an attribute that the newest transformers renamed.
    with quiet_peft():
        yield


def llama(**changes: Any) -> Any:
    torch.manual_seed(5)
    config = transformers.LlamaConfig(
        vocab_size=16, hidden_size=16, intermediate_size=24, num_hidden_layers=1,
        num_attention_heads=2, max_position_embeddings=32, bos_token_id=2, eos_token_id=2,
        pad_token_id=1, **changes,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config)


def lora(**changes: Any) -> peft.LoraConfig:
    return peft.LoraConfig(**{"r": 2, "task_type": "CAUSAL_LM", **changes})


def contents_of(model: HuggingFaceModel) -> dict[str, Any]:
    state = {"model": model.state_dict(), "integrations": model.integrations()}
    return copy.deepcopy({"format": 1, "state": state})


def save(model: HuggingFaceModel, path: Path) -> Path:
    torch.save(contents_of(model), path)
    return path


def logits(model: Any, ids: torch.Tensor = IDS) -> torch.Tensor:
    with torch.no_grad():
        return model.eval()(input_ids=ids).logits


def adapted(folder: Path, config: Any, *, base: Any = None, **options: Any) -> HuggingFaceModel:
    """A model with adapters that do something, on a base that lies in a folder."""
    (base or llama(tie_word_embeddings=True)).save_pretrained(folder)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*tie_word_embeddings", UserWarning)
        model = HuggingFaceModel(
            # Of the type that it lies there in, which is the default of transformers 5.
            AutoModelForCausalLM.from_pretrained(folder, dtype="auto"),
            peft_config=config,
            **options,
        )
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.3)
    return model


# ---- tied weights -----------------------------------------------------------------------------


def test_weights_that_differ_although_the_model_ties_them_come_out_as_trained(
    tmp_path: Path,
) -> None:
    network = llama(tie_word_embeddings=True)
    network.lm_head.weight = torch.nn.Parameter(network.lm_head.weight.detach() * 2)
    model = HuggingFaceModel(network)
    again, _ = read(save(model, tmp_path / "a.pt"))
    assert torch.equal(logits(again), logits(network))
    assert again.config.tie_word_embeddings is False
    # And from there into a folder and back.
    again.save_pretrained(tmp_path / "out")
    third = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert torch.equal(logits(third), logits(network))


def test_equal_tied_weights_stay_tied(tmp_path: Path) -> None:
    model = HuggingFaceModel(llama(tie_word_embeddings=True))
    again, _ = read(save(model, tmp_path / "a.pt"))
    assert again.lm_head.weight is again.model.embed_tokens.weight
    assert again.config.tie_word_embeddings is True


@pytest.mark.parametrize("target", ["embed_tokens", "lm_head"])
def test_an_adapter_on_one_of_two_tied_weights_is_merged_into_that_one(
    target: str, tmp_path: Path
) -> None:
    model = adapted(tmp_path / "base", lora(target_modules=[target, "q_proj"]))
    want = logits(model.model)
    export(save(model, tmp_path / "a.pt"), tmp_path / "out", adapter="merged")
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    torch.testing.assert_close(logits(merged), want, rtol=0, atol=1e-5)
    assert merged.config.tie_word_embeddings is False
    before = AutoModelForCausalLM.from_pretrained(tmp_path / "base").lm_head.weight
    other = merged.lm_head if target == "embed_tokens" else merged.model.embed_tokens
    assert torch.equal(other.weight, before)


def test_tied_weights_beside_a_merged_adapter_stay_tied(tmp_path: Path) -> None:
    model = adapted(tmp_path / "base", lora(target_modules=["q_proj"]))
    export(save(model, tmp_path / "a.pt"), tmp_path / "out", adapter="merged")
    assert "lm_head.weight" not in load_file(tmp_path / "out" / "model.safetensors")
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert merged.lm_head.weight is merged.model.embed_tokens.weight
    torch.testing.assert_close(logits(merged), logits(model.model), rtol=0, atol=1e-5)


# ---- types ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_weights_keep_the_type_they_were_trained_in(dtype: torch.dtype, tmp_path: Path) -> None:
    model = HuggingFaceModel(llama().to(dtype))
    again, _ = read(save(model, tmp_path / "a.pt"))
    assert not again.training
    for name, weight in model.model.state_dict().items():
        got = again.state_dict()[name]
        assert (got.dtype, torch.equal(got, weight)) == (dtype, True), name


@pytest.mark.parametrize("alone", [True, False])
def test_merged_weights_keep_the_type_of_the_model_beneath(alone: bool, tmp_path: Path) -> None:
    model = adapted(
        tmp_path / "base",
        lora(target_modules=["q_proj"]),
        base=llama().bfloat16(),
        should_save_peft_only=alone,
    )
    path = save(model, tmp_path / "a.pt")
    export(path, tmp_path / "out", adapter="merged")
    held = load_file(tmp_path / "out" / "model.safetensors")
    assert {weight.dtype for weight in held.values()} == {torch.bfloat16}
    again, _ = read(path)
    assert not again.training
    assert torch.equal(logits(again), logits(model.model))


def test_the_type_of_a_base_that_was_turned_after_loading_is_kept(tmp_path: Path) -> None:
    llama().save_pretrained(tmp_path / "base")
    base = AutoModelForCausalLM.from_pretrained(tmp_path / "base").bfloat16()
    model = HuggingFaceModel(base, peft_config=lora(target_modules=["q_proj"]))
    again, _ = read(save(model, tmp_path / "a.pt"))
    assert again.get_base_model().lm_head.weight.dtype is torch.bfloat16


# ---- weights that do not fit ------------------------------------------------------------------


def _missing(weights: dict[str, Any]) -> None:
    del weights["model.lm_head.weight"]


def _misshapen(weights: dict[str, Any]) -> None:
    weights["model.lm_head.weight"] = torch.ones(3, 3)


def _unknown(weights: dict[str, Any]) -> None:
    weights["model.other"] = torch.ones(3)


@pytest.mark.parametrize("damage", [_missing, _misshapen, _unknown])
def test_a_folder_is_not_written_of_weights_that_do_not_fit(
    damage: Callable[[dict[str, Any]], None], tmp_path: Path
) -> None:
    contents = contents_of(HuggingFaceModel(llama()))
    damage(contents["state"]["model"])
    path = tmp_path / "a.pt"
    torch.save(contents, path)
    said = []
    for take in (read, lambda path: export(path, tmp_path / "out")):
        with pytest.raises(ValueError, match=r"a\.pt do not fit its model.*(lm_head|other)") as e:
            take(path)
        said.append(str(e.value))
    assert said[0] == said[1]
    assert [p.name for p in tmp_path.iterdir()] == ["a.pt"]


def test_an_adapter_that_is_not_whole_is_not_written(tmp_path: Path) -> None:
    model = adapted(tmp_path / "base", lora(target_modules=["q_proj"]))
    contents = contents_of(model)
    name = next(name for name in contents["state"]["model"] if "lora_B" in name)
    del contents["state"]["model"][name]
    torch.save(contents, tmp_path / "a.pt")
    with pytest.raises(ValueError, match=r"missing:.*lora_B"):
        export(tmp_path / "a.pt", tmp_path / "out")


def test_a_weight_that_is_no_tensor_is_named(tmp_path: Path) -> None:
    contents = contents_of(HuggingFaceModel(llama()))
    contents["state"]["model"]["model.lm_head.weight"] = "text"
    torch.save(contents, tmp_path / "a.pt")
    for take in (read, lambda path: export(path, tmp_path / "out")):
        with pytest.raises(ValueError, match=r"holds a str as the weight 'lm_head\.weight'"):
            take(tmp_path / "a.pt")


def test_rows_that_the_vocabulary_got_are_in_the_folder_of_the_adapter(tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models

    names = {"<unk>": 0, **{f"w{i}": i for i in range(1, 20)}}
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(names, unk_token="<unk>")), unk_token="<unk>"
    )
    model = adapted(
        tmp_path / "base",
        lora(target_modules=["q_proj"]),
        tokenizer=tokenizer,
        allow_embedding_resizing=True,
    )
    export(save(model, tmp_path / "a.pt"), tmp_path / "alone")
    base = AutoModelForCausalLM.from_pretrained(tmp_path / "base")
    base.resize_token_embeddings(20, mean_resizing=False)
    again = peft.PeftModel.from_pretrained(base, tmp_path / "alone")
    new = torch.tensor([[19, 5, 18]])
    assert torch.equal(logits(again, new), logits(model.model, new))


# ---- adapters that cannot be repeated ---------------------------------------------------------


def test_adapters_that_no_file_of_them_alone_describes_are_refused(tmp_path: Path) -> None:
    drawn = lora(target_modules=["q_proj"], init_lora_weights="pissa_niter_4")
    with pytest.raises(ValueError, match=r"pissa_niter_4.*should_save_peft_only=False"):
        HuggingFaceModel(llama(), peft_config=drawn)
    with quiet_peft():
        ready = peft.get_peft_model(llama(), copy.deepcopy(drawn))
    with pytest.raises(ValueError, match="pissa_niter_4"):
        HuggingFaceModel(ready)
    # With the weights beneath in the file it is exact, but for a folder of the adapter alone.
    model = adapted(tmp_path / "base", drawn, should_save_peft_only=False)
    path = save(model, tmp_path / "a.pt")
    torch.manual_seed(12345)
    again, _ = read(path)
    assert torch.equal(logits(again), logits(model.model))
    export(path, tmp_path / "merged", adapter="merged")
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    torch.testing.assert_close(logits(merged), logits(model.model), rtol=0, atol=1e-5)
    with pytest.raises(ValueError, match="pissa_niter_4"):
        export(path, tmp_path / "alone")
    assert not (tmp_path / "alone").exists()
    own = peft.ShiraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM")
    own.mask_type = "mine"
    with pytest.raises(ValueError, match="mask_type='mine'"):
        HuggingFaceModel(llama(), peft_config=own)


@pytest.mark.filterwarnings("ignore:Sparse invariant checks:UserWarning")  # of torch, at peft
def test_a_sparse_adapter_goes_through_a_folder(tmp_path: Path) -> None:
    config = peft.ShiraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM")
    model = adapted(tmp_path / "base", config)
    export(save(model, tmp_path / "a.pt"), tmp_path / "alone")
    base = AutoModelForCausalLM.from_pretrained(tmp_path / "base")
    assert not torch.equal(logits(base), logits(model.model))
    again = peft.PeftModel.from_pretrained(base, tmp_path / "alone")
    assert torch.equal(logits(again), logits(model.model))


# ---- labels that carry no loss ----------------------------------------------------------------

TEXT = {
    "vocab_size": 16,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
}


def classes() -> tuple[Any, dict[str, torch.Tensor]]:
    network = transformers.BertForSequenceClassification(
        transformers.BertConfig(**TEXT, num_labels=3)
    )
    ids = torch.randint(3, 16, (5, 6))
    return network, {"input_ids": ids, "labels": torch.tensor([0, -100, 2, -100, 1])}


def spans() -> tuple[Any, dict[str, torch.Tensor]]:
    network = transformers.BertForQuestionAnswering(transformers.BertConfig(**TEXT))
    ids = torch.randint(3, 16, (5, 6))
    starts, ends = torch.tensor([0, 1, 99, 2, 6]), torch.tensor([1, 5, 99, 3, 6])
    return network, {"input_ids": ids, "start_positions": starts, "end_positions": ends}


def pixels() -> tuple[Any, dict[str, torch.Tensor]]:
    network = transformers.SegformerForSemanticSegmentation(
        transformers.SegformerConfig(
            num_labels=3, num_encoder_blocks=1, depths=[1], sr_ratios=[1], hidden_sizes=[8],
            patch_sizes=[3], strides=[2], num_attention_heads=[1], mlp_ratios=[1],
            decoder_hidden_size=8, semantic_loss_ignore_index=255,
        )
    )  # fmt: skip
    labels = torch.randint(0, 3, (5, 6, 6))
    labels[0] = 255
    labels[1, :4] = 255
    labels[3, 2] = 255
    return network, {"pixel_values": torch.randn(5, 3, 6, 6), "labels": labels}


COUNTED = {"classes": (classes, 3), "spans": (spans, 3), "pixels": (pixels, 5 * 36 - 36 - 24 - 6)}


@pytest.mark.parametrize("head", COUNTED)
@pytest.mark.parametrize("size", [1, 2, 3])
def test_parts_of_a_batch_weigh_by_the_labels_that_count(head: str, size: int) -> None:
    """The weighted mean over parts is the model's own loss of the whole, gradients included."""
    torch.manual_seed(2)
    build, count = COUNTED[head]
    network, batch = build()
    # In evaluation, so that neither dropout nor the statistics of a batch make parts differ.
    model = HuggingFaceModel(network).eval()
    assert model.num_loss_tokens(batch) == count
    model.loss(model(batch), batch).backward()
    whole = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    for part in default_split_batch(batch, size):
        share = model.num_loss_tokens(part)
        if share:
            (model.loss(model(part), part) * share / count).backward()
    split = [p.grad for p in model.parameters() if p.grad is not None]
    assert len(whole) == len(split) > 0
    for one, other in zip(whole, split, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_whole_numbers_that_are_values_are_not_counted() -> None:
    one = transformers.BertForSequenceClassification(transformers.BertConfig(**TEXT, num_labels=1))
    batch = {"input_ids": IDS, "labels": torch.tensor([-100, 3])}
    assert HuggingFaceModel(one).num_loss_tokens(batch) is None
    several = transformers.BertForSequenceClassification(
        transformers.BertConfig(**TEXT, num_labels=3, problem_type="regression")
    )
    assert HuggingFaceModel(several).num_loss_tokens(batch) is None


# ---- out of the trainer -----------------------------------------------------------------------


def _gpt2() -> Any:
    config = transformers.GPT2Config(
        vocab_size=16, n_positions=16, n_embd=16, n_layer=1, n_head=2, bos_token_id=0,
        eos_token_id=0,
    )  # fmt: skip
    return transformers.GPT2LMHeadModel(config)


# A trace of transformers' code takes lengths for constants, and TorchScript is on its way out.
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore:`torch.jit:FutureWarning")
@pytest.mark.parametrize("build", [llama, _gpt2])
@pytest.mark.parametrize("adapter", [False, True])
def test_a_language_model_becomes_torchscript(
    build: Callable[[], Any], adapter: bool, tmp_path: Path
) -> None:
    target = ["q_proj"] if build is llama else ["c_attn"]
    model = HuggingFaceModel(
        build(), peft_config=lora(target_modules=target) if adapter else None
    ).eval()
    batch = {"input_ids": IDS, "labels": IDS}
    report = export_model(model, "torchscript", tmp_path / "a.ts", batch)
    assert report.max_difference < 1e-5
    with torch.no_grad():
        got = torch.jit.load(tmp_path / "a.ts")(input_ids=IDS)
    torch.testing.assert_close(got["logits"], logits(model.model))
    # The model itself still keeps the past of what it generates.
    assert model.config.use_cache is True
    assert model(batch).past_key_values is not None


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore:`torch.jit:FutureWarning")
@pytest.mark.parametrize("window", [None, 2])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("save_format", ["torchscript", "torch_export"])
def test_the_mask_of_a_language_model_is_exported_with_it(
    save_format: str, attention: str, window: int | None, tmp_path: Path
) -> None:
    """Read back, and called with other texts and another mask than it was exported with."""
    torch.manual_seed(4)
    config = transformers.MistralConfig(
        vocab_size=16, hidden_size=16, intermediate_size=24, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=1, sliding_window=window, bos_token_id=2,
        eos_token_id=2, pad_token_id=1, attn_implementation=attention,
    )  # fmt: skip
    model = HuggingFaceModel(transformers.MistralForCausalLM(config)).eval()
    mask = torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1]])
    path = tmp_path / "a"
    export_model(model, save_format, path, {"input_ids": IDS, "attention_mask": mask})
    load = torch.jit.load if save_format == "torchscript" else _exported
    other = {"input_ids": IDS.flip(1), "attention_mask": mask.flip(0, 1)}
    with torch.no_grad():
        got, want = load(path)(**other)["logits"], model.model(**other).logits
        unmasked = model.model(input_ids=other["input_ids"]).logits
    torch.testing.assert_close(got[mask.flip(0, 1) == 1], want[mask.flip(0, 1) == 1])
    assert not torch.allclose(want, unmasked, atol=1e-3)


def _exported(path: Path) -> Any:
    return torch.export.load(path).module()


# ---- what is in a checkpoint is not trusted ---------------------------------------------------

OWN_NAMES = [
    "config.json",
    "Config.JSON",
    "./config.json",
    "generation_config.json",
    "model.safetensors",
    "model.safetensors.index.json",
    "adapter_config.json",
    "adapter_model.safetensors",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
]


@pytest.mark.parametrize("name", OWN_NAMES)
def test_files_of_a_tokenizer_do_not_replace_those_of_the_model(name: str, tmp_path: Path) -> None:
    contents = contents_of(HuggingFaceModel(llama()))
    kept = contents["state"]["integrations"]["huggingface"]
    kept["tokenizer"] = {name: {"file_extension": "", "content": "{}"}}
    torch.save(contents, tmp_path / "a.pt")
    with pytest.raises(ValueError, match="file of the model's own"):
        export(tmp_path / "a.pt", tmp_path / "out")
    assert [p.name for p in tmp_path.iterdir()] == ["a.pt"]


@pytest.mark.parametrize("name", ["x.PY", "x.pyc", "x.Py.", "sub/generate.py", "x.so"])
def test_code_is_known_by_any_spelling_of_its_name(name: str, tmp_path: Path) -> None:
    files = {name: {"file_extension": "", "content": "raise SystemExit"}}
    assert write_tokenizer_files(files, tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_damaged_files_of_a_tokenizer_are_named(tmp_path: Path) -> None:
    def entry(content: Any = "x", ending: str = "") -> dict[str, Any]:
        return {"file_extension": ending, "content": content}

    wrong: list[tuple[Any, str]] = [
        ({5: entry()}, "a file named 5"),
        ({"sub": entry(), "sub/a": entry()}, "as the folder of another"),
        ({"a.txt": entry(), "a": entry(ending=".txt")}, "twice"),
        ({"a.json": entry(torch.ones(1))}, "plain types"),
        ([1], "mapping of names to files"),
    ]
    for files, match in wrong:
        with pytest.raises(ValueError, match=match):
            write_tokenizer_files(files, tmp_path)
    assert list(tmp_path.iterdir()) == []
    # Both ways to a tokenizer: by the class that is named, and by transformers' plain one.
    for name in ("PreTrainedTokenizerFast", "OfLaterReleases"):
        config = entry({"tokenizer_class": name}, ".json")
        with pytest.raises(ValueError, match="makes no tokenizer"):
            load_tokenizer({"tokenizer.json": entry(5, ".json"), "tokenizer_config.json": config})
    with pytest.raises(ValueError, match="makes no tokenizer"):
        load_tokenizer({"tokenizer.json": entry(5, ".json")})


def _set(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(kept: dict[str, Any]) -> None:
        *outer, last = path.split("/")
        for key in outer:
            kept = kept[key]
        kept[last] = value

    return change


# Transformers checks the types of a configuration since 5; before, torch refuses the size.
_SIZE = (
    r"cannot be built from a LlamaConfig: empty\(\).*type must be tuple of ints"
    if transformers_before_5()
    else "hidden_size"
)
DAMAGE = {
    "a tensor": (_set("model/config/content/x", torch.ones(2)), "config .* plain types"),
    "a list as generation": (_set("model/generation_config", [1]), "generation_config .* list"),
    "a text as adapter": (_set("model/peft_config", "lora"), "peft_config .* str"),
    "a list as adapters": (_set("model/peft_configs", [1]), "peft_configs .* list"),
    "a list as tokenizer": (_set("tokenizer", [1]), "tokenizer .* list"),
    "a size of text": (_set("model/config/content/hidden_size", "x"), _SIZE),
    "another class": (_set("model/config/class", "transformers.T5Model"), "T5Model"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_description_of_a_model_is_told(damage: str, tmp_path: Path) -> None:
    contents = contents_of(HuggingFaceModel(llama()))
    change, match = DAMAGE[damage]
    change(contents["state"]["integrations"]["huggingface"])
    torch.save(contents, tmp_path / "a.pt")
    for take in (read, lambda path: export(path, tmp_path / "out")):
        with pytest.raises(ValueError, match=match):
            take(tmp_path / "a.pt")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["kernels-community/flash-attn", "someone/x@v1:f", "mine"])
@pytest.mark.parametrize("key", ["attn_implementation", "_attn_implementation"])
def test_a_checkpoint_does_not_ask_for_code_of_the_hub_to_attend_with(
    name: str, key: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = HuggingFaceModel(llama())
    contents = contents_of(model)
    content = contents["state"]["integrations"]["huggingface"]["model"]["config"]["content"]
    content.update({key: name, "extra": {key: {"": name}}})
    torch.save(contents, tmp_path / "a.pt")
    with caplog.at_level("WARNING", "composer"):
        again, _ = read(tmp_path / "a.pt")
    assert name in caplog.text
    assert torch.equal(logits(again), logits(model.model))
    export(tmp_path / "a.pt", tmp_path / "out")
    written = json.loads((tmp_path / "out" / "config.json").read_text())
    assert name not in json.dumps(written)
    own, _ = read(tmp_path / "a.pt", model_config_kwargs={"attn_implementation": "eager"})
    assert own.config._attn_implementation == "eager"


# ---- arguments --------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["no", 1, None])
def test_trust_is_given_by_true_alone(value: Any, tmp_path: Path) -> None:
    path = save(HuggingFaceModel(llama()), tmp_path / "a.pt")
    takers: list[Callable[[], Any]] = [
        lambda: read(path, trust_remote_code=value),
        lambda: export(path, tmp_path / "out", trust_remote_code=value),
        lambda: HuggingFaceModel.load_huggingface_tokenizer_from_saved_state({}, value),
    ]
    for take in takers:
        with pytest.raises(TypeError, match=f"trust_remote_code={value!r} must be True or False"):
            take()


WRONG_ARGUMENTS = {
    "allow_embedding_resizing": "yes",
    "shift_labels": "no",
    "use_logits": 1,
    "should_save_peft_only": "no",
    "tokenizer": 5,
    "metrics": 5,
    "eval_metrics": "accuracy",
}


@pytest.mark.parametrize("name", WRONG_ARGUMENTS)
def test_wrong_arguments_of_the_model_are_named(name: str) -> None:
    value = WRONG_ARGUMENTS[name]
    with pytest.raises(TypeError, match=f"{name}={value!r} must be"):
        HuggingFaceModel(llama(), **{name: value})


def test_wrong_arguments_of_reading_are_named(tmp_path: Path) -> None:
    path = save(HuggingFaceModel(llama()), tmp_path / "a.pt")
    with pytest.raises(ValueError, match=r"'hiden_size'.*Did you mean \"hidden_size\""):
        read(path, model_config_kwargs={"hiden_size": 3})
    with pytest.raises(TypeError, match=r"model_config_kwargs=\[3\]"):
        read(path, model_config_kwargs=[3])
    contents = torch.load(path, weights_only=False)
    with pytest.raises(ValueError, match="config_overrides names 'n_lay'"):
        get_hf_config_from_composer_state_dict(contents, {"n_lay": 3})
    for wrong in ("nope", "transformers.Nope", "no_such_module.Model"):
        with pytest.raises(ValueError, match=f"model_instantiation_class='{wrong}' is not found"):
            read(path, wrong)
    for other in (5, "os.path", torch.nn.Linear):
        with pytest.raises(TypeError, match="model_instantiation_class="):
            read(path, other)


def test_wrong_arguments_of_writing_are_named(tmp_path: Path) -> None:
    path = save(HuggingFaceModel(llama()), tmp_path / "a.pt")
    for size in (2.5, True, None):
        with pytest.raises(ValueError, match=f"max_shard_size={size!r} must be"):
            export(path, tmp_path / "out", max_shard_size=size)
    with pytest.raises(ValueError, match=r"dtype=\['a'\] must be"):
        export(path, tmp_path / "out", dtype=["a"])
    with pytest.raises(TypeError, match="output_folder=None"):
        export(path, None)
    with pytest.raises(NotADirectoryError, match=r"a\.pt is a file"):
        export(path, path / "sub")
    assert [p.name for p in tmp_path.iterdir()] == ["a.pt"]


@pytest.mark.parametrize("build", [llama, _gpt2])
@pytest.mark.parametrize("shape", [(0, 4), (2, 0)])
def test_a_batch_of_nothing_is_said_to_be_empty(
    build: Callable[[], Any], shape: tuple[int, int]
) -> None:
    ids = torch.zeros(shape, dtype=torch.int64)
    with pytest.raises(ValueError, match=r"input_ids of shape .* makes an empty batch"):
        HuggingFaceModel(build())({"input_ids": ids, "labels": ids})


@pytest.mark.slow
def test_attention_that_torch_cannot_turn_into_onnx_is_told_with_one_that_it_can(
    tmp_path: Path,
) -> None:
    pytest.importorskip("onnxruntime")
    config = transformers.T5Config(
        d_model=8, d_ff=16, d_kv=4, num_layers=1, num_heads=2, vocab_size=20,
        decoder_start_token_id=0,
    )  # fmt: skip
    model = HuggingFaceModel(transformers.T5ForConditionalGeneration(config))
    batch = {"input_ids": IDS, "attention_mask": torch.ones_like(IDS), "decoder_input_ids": IDS}
    words = r"T5ForConditionalGeneration cannot be exported as onnx: .*set_attn_implementation"
    if model.config._attn_implementation == "sdpa":  # which T5 has since transformers 5
        with pytest.raises(ValueError, match=words) as info:
            export_model(model, "onnx", tmp_path / "a.onnx", batch)
        assert "\x1b" not in str(info.value)
        assert "\n" not in str(info.value)
        assert list(tmp_path.iterdir()) == []
    report = export_model(
        model,
        "onnx",
        tmp_path / "a.onnx",
        batch,
        prepare=lambda twin: twin.model.set_attn_implementation("eager") or twin,
    )
    assert report.max_difference < 1e-4 < report.largest


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        ({"model_config": 5}, TypeError, "model_config=5 must be a mapping"),
        ({"use_pretrained": "no"}, TypeError, "use_pretrained='no' must be True or False"),
        ({"gradient_checkpointing": 1}, TypeError, "gradient_checkpointing=1 must be True or"),
        ({"pretrained_model_name": "no/such"}, OSError, "pretrained_model_name='no/such' is nei"),
        ({"pretrained_model_name": "/no/a/b"}, OSError, "pretrained_model_name='/no/a/b' is nei"),
        ({"tokenizer_name": "no/such"}, OSError, "tokenizer_name='no/such' is neither a folder"),
        ({"tokenizer_name": "/no/a/b"}, OSError, "tokenizer_name='/no/a/b' is neither a folder"),
    ],
)
@pytest.mark.parametrize("build", [create_bert_mlm, create_bert_classification, create_gpt2])
def test_wrong_arguments_of_the_factories_are_named(
    build: Callable[..., Any], arguments: dict[str, Any], kind: type[Exception], words: str
) -> None:
    small: dict[str, Any] = {"n_layer": 1, "n_embd": 8, "n_head": 2}
    if build is not create_gpt2:
        small = {"num_hidden_layers": 1, "hidden_size": 8, "num_attention_heads": 2}
    with pytest.raises(kind, match=words) as info:
        build(**{"model_config": {**small, "vocab_size": 50}, **arguments})
    assert "\n" not in str(info.value)
