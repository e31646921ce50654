"""HuggingFaceModel into checkpoints and out of them: whole, adapters, folders, files of 0.32."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
import transformers
from safetensors import safe_open
from safetensors.torch import load_file
from tokenizers import Tokenizer, models, pre_tokenizers
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

from composer import Trainer
from composer.algorithms import EMA
from composer.checkpoint import read_checkpoint, save_checkpoint
from composer.cli import main
from composer.core import Callback, State
from composer.metrics import LanguageCrossEntropy
from composer.models import (
    HuggingFaceModel,
    write_huggingface_pretrained_from_composer_checkpoint,
)
from composer.models.huggingface import (
    filter_state_dict_peft,
    get_hf_config_from_composer_state_dict,
    get_peft_config_from_composer_state_dict,
)
from composer.models.huggingface.adapters import quiet_peft
from composer.models.huggingface.export import export_contents, parse_size
from composer.models.huggingface.tokenizer import load_tokenizer, write_tokenizer_files
from composer_testing.repository import ROOT

OLD = Path(__file__).parent / "data" / "composer-0.32"
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
]
export = write_huggingface_pretrained_from_composer_checkpoint


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    # peft's own loaders read an attribute that the newest transformers renamed.
    with quiet_peft():
        yield


def words() -> Any:
    names = ["<unk>", "<pad>", "<end>", *WORDS]
    plain = Tokenizer(
        models.WordLevel({name: i for i, name in enumerate(names)}, unk_token="<unk>")
    )
    plain.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=plain, unk_token="<unk>", pad_token="<pad>", eos_token="<end>"
    )


def llama(seed: int = 5, width: int = 16, **changes: Any) -> Any:
    torch.manual_seed(seed)
    config = transformers.LlamaConfig(
        vocab_size=24, hidden_size=width, intermediate_size=2 * width, num_hidden_layers=2,
        num_attention_heads=2, max_position_embeddings=32, bos_token_id=2, eos_token_id=2,
        pad_token_id=1, **changes,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config)


def lora(**changes: Any) -> peft.LoraConfig:
    options = {"r": 2, "target_modules": ["q_proj", "v_proj"], "task_type": "CAUSAL_LM"}
    return peft.LoraConfig(**{**options, **changes})


def loader(seed: int = 7) -> DataLoader[Any]:
    rows = torch.randint(3, 21, (8, 10), generator=torch.Generator().manual_seed(seed))
    return DataLoader([{"input_ids": row, "labels": row} for row in rows], batch_size=4)


def train(model: HuggingFaceModel, duration: str = "2ep", **options: Any) -> Trainer:
    trainer = Trainer(
        model=model,
        train_dataloader=loader(),
        optimizers=torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=2e-2),
        max_duration=duration,
        device="cpu",
        seed=3,
        **options,
    )
    trainer.fit()
    return trainer


def ids() -> torch.Tensor:
    return words()(SENTENCE, return_tensors="pt")["input_ids"]


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        return model.eval()(input_ids=ids()).logits


@pytest.fixture
def trained(tmp_path: Path) -> tuple[HuggingFaceModel, Path]:
    """A trained model with everything that belongs to it, and its checkpoint."""
    model = HuggingFaceModel(llama(tie_word_embeddings=True), tokenizer=words())
    model.model.generation_config.top_k = 7
    model.model.generation_config.do_sample = True
    trainer = train(model)
    return model, Path(save_checkpoint(trainer.state, str(tmp_path / "a.pt"), weights_only=True))


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A folder of a model that adapters can be put on."""
    llama().save_pretrained(tmp_path / "base")
    return tmp_path / "base"


def adapted(base: Path, config: Any | None = None, **options: Any) -> HuggingFaceModel:
    network = AutoModelForCausalLM.from_pretrained(base)
    torch.manual_seed(9)
    return HuggingFaceModel(network, tokenizer=words(), peft_config=config or lora(), **options)


def saved(model: HuggingFaceModel, path: Path, **options: Any) -> Path:
    trainer = train(model, **options)
    return Path(save_checkpoint(trainer.state, str(path), weights_only=True))


# ---- whole models -----------------------------------------------------------------------------


def test_a_folder_has_all_that_the_loaders_need(
    trained: tuple[HuggingFaceModel, Path], tmp_path: Path
) -> None:
    model, path = trained
    export(path, tmp_path / "out")
    network = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert tokenizer(SENTENCE)["input_ids"] == model.tokenizer(SENTENCE)["input_ids"]
    assert (tokenizer.pad_token, tokenizer.eos_token) == ("<pad>", "<end>")
    assert (network.generation_config.top_k, network.generation_config.do_sample) == (7, True)
    assert torch.equal(logits(network), logits(model.model))
    for name, tensor in model.model.state_dict().items():
        assert torch.equal(network.state_dict()[name], tensor), name
    # Tied weights are written once and are one weight after loading.
    assert "lm_head.weight" not in load_file(tmp_path / "out" / "model.safetensors")
    assert network.lm_head.weight is network.model.embed_tokens.weight
    assert not list((tmp_path / "out").glob("*.py")) + list(tmp_path.glob(".out*"))


def test_there_and_back_again(trained: tuple[HuggingFaceModel, Path], tmp_path: Path) -> None:
    """From a folder into a trainer, into a checkpoint, into a folder: the same bits."""
    path = trained[1]
    export(path, tmp_path / "one")
    network = AutoModelForCausalLM.from_pretrained(tmp_path / "one")
    again = HuggingFaceModel(network, tokenizer=AutoTokenizer.from_pretrained(tmp_path / "one"))
    state = Trainer(model=again, device="cpu").state
    second = save_checkpoint(state, str(tmp_path / "b.pt"), weights_only=True)
    export(second, tmp_path / "two")
    first = (tmp_path / "one" / "model.safetensors").read_bytes()
    assert (tmp_path / "two" / "model.safetensors").read_bytes() == first
    configs = [json.loads((tmp_path / n / "config.json").read_text()) for n in ("one", "two")]
    assert configs[0] == configs[1]
    names = {p.name for p in (tmp_path / "one").iterdir()}
    assert names == {p.name for p in (tmp_path / "two").iterdir()}
    assert names > {"config.json", "generation_config.json", "tokenizer.json"}


def test_a_model_comes_out_of_a_checkpoint_with_its_weights(
    trained: tuple[HuggingFaceModel, Path], tmp_path: Path
) -> None:
    model, path = trained
    network, tokenizer = HuggingFaceModel.hf_from_composer_checkpoint(path)
    assert type(network) is transformers.LlamaForCausalLM
    assert torch.equal(logits(network), logits(model.model))
    assert network.generation_config.top_k == 7
    assert tokenizer(SENTENCE)["input_ids"] == ids()[0].tolist()
    tokenizer.save_pretrained(tmp_path / "again")  # its files are not needed any more
    contents = read_checkpoint(path)
    assert get_hf_config_from_composer_state_dict(contents, {"use_cache": False}).use_cache is False
    assert get_peft_config_from_composer_state_dict(contents) is None
    given = "transformers.AutoModelForCausalLM"
    network, _ = HuggingFaceModel.hf_from_composer_checkpoint(path, given)
    assert torch.equal(logits(network), logits(model.model))
    kept = contents["state"]["integrations"]["huggingface"]
    fresh = HuggingFaceModel.load_huggingface_model_from_saved_state(kept, contents, None, None)
    assert not torch.equal(logits(fresh), logits(model.model))
    folder = tmp_path / "tokenizer"
    load = HuggingFaceModel.load_huggingface_tokenizer_from_saved_state
    assert load(kept, False, str(folder))(SENTENCE)["input_ids"] == ids()[0].tolist()
    assert (folder / "tokenizer.json").is_file()


HEADS: dict[str, Any] = {
    "GPT-2": lambda: transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=24,
            n_positions=16,
            n_embd=16,
            n_layer=2,
            n_head=2,
            bos_token_id=2,
            eos_token_id=2,
        )
    ),
    "T5": lambda: transformers.T5ForConditionalGeneration(
        transformers.T5Config(
            vocab_size=24,
            d_model=16,
            d_kv=8,
            d_ff=24,
            num_layers=1,
            num_heads=2,
            decoder_start_token_id=0,
        )
    ),
    **{
        head: lambda head=head: getattr(transformers, f"BertFor{head}")(
            transformers.BertConfig(
                vocab_size=24,
                hidden_size=16,
                num_hidden_layers=1,
                num_attention_heads=2,
                intermediate_size=24,
                num_labels=3,
            )
        )
        for head in ("MaskedLM", "SequenceClassification", "TokenClassification")
    },
}


@pytest.mark.parametrize("head", HEADS)
def test_every_head_goes_through_a_folder(head: str, tmp_path: Path) -> None:
    model = HuggingFaceModel(HEADS[head]())
    state = Trainer(model=model, device="cpu").state
    path = save_checkpoint(state, str(tmp_path / "a.pt"), weights_only=True)
    export(path, tmp_path / "out", max_shard_size="4KB")
    cls = type(model.model)
    network, report = cls.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    kept = model.model.state_dict()
    assert {k for k, v in network.state_dict().items() if not torch.equal(v, kept[k])} == set()
    again, _ = HuggingFaceModel.hf_from_composer_checkpoint(path)
    assert all(torch.equal(v, kept[k]) for k, v in again.state_dict().items())


def test_files_are_split_by_size_and_the_type_can_be_turned(
    trained: tuple[HuggingFaceModel, Path], tmp_path: Path
) -> None:
    model, path = trained
    export(path, tmp_path / "out", max_shard_size="5KB", dtype="bfloat16")
    files = sorted(p.name for p in (tmp_path / "out").glob("*.safetensors"))
    index = json.loads((tmp_path / "out" / "model.safetensors.index.json").read_text())
    assert len(files) > 2
    assert files[0] == f"model-00001-of-{len(files):05d}.safetensors"
    assert sorted(set(index["weight_map"].values())) == files
    sizes = 0
    for file in files:
        with safe_open(tmp_path / "out" / file, "pt") as opened:
            for name in opened.keys():  # noqa: SIM118
                tensor = opened.get_tensor(name)
                assert index["weight_map"][name] == file
                want = model.model.state_dict()[name].to(torch.bfloat16)
                assert torch.equal(tensor, want)
                sizes += tensor.numel() * 2
    assert index["metadata"]["total_size"] == sizes
    network = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype="auto")
    assert network.dtype is torch.bfloat16
    assert parse_size("1.5MB") == 1_500_000
    for wrong in ("5 apples", 0, "-1GB"):
        with pytest.raises(ValueError, match="max_shard_size"):
            export(path, tmp_path / "no", max_shard_size=wrong)
    with pytest.raises(ValueError, match=r"dtype='int8'.*bfloat16"):
        export(path, tmp_path / "no", dtype="int8")
    assert not (tmp_path / "no").exists()


def test_tensors_are_read_one_by_one(
    trained: tuple[HuggingFaceModel, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No more than one converted weight is alive at a time."""
    alive, most = [0], [0]

    import weakref

    from composer.models.huggingface import folder_files as module

    write = module.write_safetensors

    def counting(path: Path, shapes: Any, read: Any, **options: Any) -> None:
        def watched(name: str) -> torch.Tensor:
            tensor = read(name)
            alive[0] += 1
            most[0] = max(most[0], alive[0])
            weakref.finalize(tensor, lambda: alive.__setitem__(0, alive[0] - 1))
            return tensor

        write(path, shapes, watched, **options)

    monkeypatch.setattr(module, "write_safetensors", counting)
    export(trained[1], tmp_path / "out", dtype="float16")
    assert most[0] <= 2  # the next is made before the last one's name is taken over


def test_a_folder_that_holds_something_is_left_alone(
    trained: tuple[HuggingFaceModel, Path], tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="empty"):
        export(trained[1], tmp_path / "out")
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["mine.txt"]
    (tmp_path / "empty").mkdir()
    export(trained[1], tmp_path / "empty")
    assert (tmp_path / "empty" / "config.json").is_file()


def test_a_failed_export_leaves_nothing(
    trained: tuple[HuggingFaceModel, Path], tmp_path: Path
) -> None:
    contents = read_checkpoint(trained[1])
    contents["state"]["integrations"]["huggingface"]["tokenizer"]["../out.txt"] = {
        "file_extension": ".txt",
        "content": "x",
    }
    before = sorted(p.name for p in tmp_path.iterdir())
    with pytest.raises(ValueError, match="leads out"):
        export_contents(contents, tmp_path / "out")
    assert sorted(p.name for p in tmp_path.iterdir()) == before


def test_weights_that_the_model_ties_but_that_differ_are_kept(
    trained: tuple[HuggingFaceModel, Path], tmp_path: Path
) -> None:
    contents = read_checkpoint(trained[1])
    weights = contents["state"]["model"]
    weights["model.lm_head.weight"] = weights["model.lm_head.weight"] + 1
    done = export_contents(contents, tmp_path / "out")
    assert done.tied == {}
    held = load_file(tmp_path / "out" / "model.safetensors")
    assert torch.equal(held["lm_head.weight"], weights["model.lm_head.weight"])
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["tie_word_embeddings"] is False
    network = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert torch.equal(network.lm_head.weight, weights["model.lm_head.weight"])


def test_other_checkpoints_say_that_they_hold_no_such_model(tmp_path: Path) -> None:
    torch.save({"format": 1, "state": {"model": {"a": torch.ones(1)}}}, tmp_path / "a.pt")
    with pytest.raises(ValueError, match="no model of Hugging Face"):
        export(tmp_path / "a.pt", tmp_path / "out")
    with pytest.raises(ValueError, match="no model of Hugging Face"):
        HuggingFaceModel.hf_from_composer_checkpoint(tmp_path / "a.pt")
    with pytest.raises(FileNotFoundError):
        export(tmp_path / "b.pt", tmp_path / "out")


# ---- what is in a checkpoint is not trusted ---------------------------------------------------


@pytest.mark.parametrize(
    "name", ["../a.txt", "/tmp/a.txt", "x/../../a.txt", "..\\a.txt", "C:\\a.txt", "..", "a\0.txt"]
)
def test_names_of_files_stay_in_their_folder(name: str, tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    with pytest.raises(ValueError, match="leads out of the folder"):
        write_tokenizer_files({name: {"file_extension": "", "content": "x"}}, inner)
    assert [p.name for p in tmp_path.rglob("*")] == ["inner"]


def test_code_of_a_tokenizer_is_not_written_unless_trusted(tmp_path: Path) -> None:
    files = {
        "tokenization_mine.py": {"file_extension": ".py", "content": "raise SystemExit"},
        "code": {"file_extension": ".py", "content": "raise SystemExit"},
        "sub/words.txt": {"file_extension": ".txt", "content": ["a", "b"]},
        "tokenizer.model": {"file_extension": ".model", "content": b"\x00\x01"},
        "vocab.json": {"file_extension": ".json", "content": {"a": 1}},
    }
    written = write_tokenizer_files(files, tmp_path)
    assert written == ["sub/words.txt", "tokenizer.model", "vocab.json"]
    assert (tmp_path / "sub" / "words.txt").read_text() == "a\nb"
    assert (tmp_path / "tokenizer.model").read_bytes() == b"\x00\x01"
    assert json.loads((tmp_path / "vocab.json").read_text()) == {"a": 1}
    trusted = write_tokenizer_files(files, tmp_path, trust_remote_code=True)
    assert set(trusted) - set(written) == {"tokenization_mine.py", "code.py"}


def test_a_class_that_is_not_of_transformers_is_not_looked_up(
    trained: tuple[HuggingFaceModel, Path],
) -> None:
    contents = read_checkpoint(trained[1])
    entry = contents["state"]["integrations"]["huggingface"]["model"]["config"]
    build = HuggingFaceModel.load_huggingface_model_from_saved_state
    for cls in ("os.system", "transformers.pipeline", "my_project.models.Mine", "__import__"):
        entry["class"] = cls
        with pytest.raises(ValueError, match="model_instantiation_class"):
            build({}, contents)
    assert build({}, contents, transformers.LlamaForCausalLM).config.vocab_size == 24


# ---- adapters ---------------------------------------------------------------------------------

ADAPTERS: dict[str, Any] = {
    "LoRA": lora(),
    "LoRA with bias and a head": lora(bias="all", modules_to_save=["lm_head"]),
    "DoRA": lora(use_dora=True),
    "IA3": peft.IA3Config(task_type="CAUSAL_LM"),
    "VeRA": peft.VeraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM"),
    "LoHa": peft.LoHaConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM"),
    "prompt": peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3),
    "prefix": peft.PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3),
    "adaption prompt": peft.AdaptionPromptConfig(
        adapter_len=2, adapter_layers=1, task_type="CAUSAL_LM"
    ),
}
NOT_MERGED = {"prompt", "prefix", "adaption prompt"}


@pytest.mark.parametrize("kind", ADAPTERS)
def test_every_adapter_is_trained_saved_alone_and_comes_back(
    kind: str, base: Path, tmp_path: Path
) -> None:
    """All that was trained is in the file, and nothing of the base that was not."""
    model = adapted(base, ADAPTERS[kind])
    frozen = {n: p.detach().clone() for n, p in model.named_parameters() if not p.requires_grad}
    path = saved(model, tmp_path / "a.pt")
    held = read_checkpoint(path)["state"]["model"]
    learned = {n for n, p in model.named_parameters() if p.requires_grad}
    assert learned
    assert learned <= set(held)
    assert all(torch.equal(p, dict(model.named_parameters())[n]) for n, p in frozen.items())
    assert sum(v.numel() for v in held.values()) < sum(p.numel() for p in frozen.values())
    # Into a model with other adapters, strictly; a weight that is missing is noticed.
    other = adapted(base, ADAPTERS[kind])
    with torch.no_grad():
        for p in other.parameters():
            if p.requires_grad:
                p.add_(0.1)
    assert not torch.equal(logits(other.model), logits(model.model))
    other.load_state_dict(held, strict=True)
    assert torch.equal(logits(other.model), logits(model.model))
    for name in learned:
        with pytest.raises(RuntimeError, match="Missing"):
            other.load_state_dict({n: v for n, v in held.items() if n != name})
    with pytest.raises(RuntimeError, match="Unexpected"):
        other.load_state_dict({**held, "model.other": torch.ones(1)})
    # Out of the checkpoint, onto the base that the adapter names.
    network, _ = HuggingFaceModel.hf_from_composer_checkpoint(path)
    assert torch.equal(logits(network), logits(model.model))


@pytest.mark.parametrize("kind", ADAPTERS)
def test_every_adapter_goes_through_a_folder(kind: str, base: Path, tmp_path: Path) -> None:
    model = adapted(base, ADAPTERS[kind])
    path = saved(model, tmp_path / "a.pt")
    export(path, tmp_path / "alone")
    network = peft.PeftModel.from_pretrained(
        AutoModelForCausalLM.from_pretrained(base), tmp_path / "alone"
    )
    assert torch.equal(logits(network), logits(model.model))
    names = set(load_file(tmp_path / "alone" / "adapter_model.safetensors"))
    with torch.no_grad():
        model.model.save_pretrained(tmp_path / "theirs")
    assert names == set(load_file(tmp_path / "theirs" / "adapter_model.safetensors"))
    if kind in NOT_MERGED:
        with pytest.raises(ValueError, match="alone"):
            export(path, tmp_path / "merged", adapter="merged")
        return
    export(path, tmp_path / "merged", adapter="merged")
    merged, report = AutoModelForCausalLM.from_pretrained(
        tmp_path / "merged", output_loading_info=True
    )
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    assert type(merged) is transformers.LlamaForCausalLM
    torch.testing.assert_close(logits(merged), logits(model.model), rtol=0, atol=1e-5)
    assert AutoTokenizer.from_pretrained(tmp_path / "merged")(SENTENCE)["input_ids"] == (
        ids()[0].tolist()
    )


def test_resuming_with_adapters_is_exact(base: Path, tmp_path: Path) -> None:
    dropped = lora(lora_dropout=0.3)
    straight = adapted(base, dropped)
    train(straight, "4ep")
    train(adapted(base, dropped), "2ep", save_folder=str(tmp_path / "run"), save_interval="2ep")
    again = adapted(base, dropped)
    with torch.no_grad():
        for p in again.parameters():
            if p.requires_grad:
                p.fill_(7.0)
    latest = next((tmp_path / "run").glob("ep2*.pt"))
    train(again, "4ep", load_path=str(latest))
    for (name, one), (_, other) in zip(
        straight.named_parameters(), again.named_parameters(), strict=True
    ):
        assert torch.equal(one, other), name


class _Weights(Callback):
    """Keeps what is trained, as it is after each batch."""

    def __init__(self) -> None:
        self.seen: list[dict[str, torch.Tensor]] = []

    def batch_end(self, state: State, logger: Any) -> None:
        named = state.model.named_parameters()
        self.seen.append({name: p.detach().clone() for name, p in named if p.requires_grad})


@pytest.mark.parametrize("alone", [True, False])
def test_adapters_are_averaged_resumed_evaluated_and_exported(
    alone: bool, base: Path, tmp_path: Path
) -> None:
    """The average of the weights after each batch is what is evaluated and what is exported."""

    def tuned() -> HuggingFaceModel:
        metrics = [LanguageCrossEntropy()]
        return adapted(base, metrics=metrics, should_save_peft_only=alone)

    def averaged(duration: str, **options: Any) -> Trainer:
        average = EMA(half_life=None, smoothing=0.5, update_interval="1ba")
        return train(tuned(), duration, algorithms=[average], eval_dataloader=loader(), **options)

    weights = _Weights()
    straight = averaged("3ba", callbacks=[weights])
    averaged("3ba", save_folder=str(tmp_path / "run"), save_interval="1ba").close()
    again = averaged("3ba", load_path=str(next((tmp_path / "run").glob("*-ba2-rank0.pt"))))
    live = dict(again.state.model.named_parameters())
    assert all(torch.equal(p, live[n]) for n, p in straight.state.model.named_parameters())

    first, *rest = weights.seen
    mean = {name: value.clone() for name, value in first.items()}
    for later in rest:
        mean = {name: 0.5 * mean[name] + 0.5 * value for name, value in later.items()}
    twin = tuned()
    twin.load_state_dict(mean, strict=False)
    rows = torch.cat([batch["input_ids"] for batch in loader()])
    with torch.no_grad():
        expected = float(twin.model.eval()(input_ids=rows, labels=rows).loss)
    for trainer in (straight, again):
        (metric,) = trainer.state.eval_metrics["eval"].values()
        assert float(metric.compute()) == pytest.approx(expected, rel=1e-5)
    path = str(again.save_checkpoint(str(tmp_path / "end.pt")))
    export(path, tmp_path / "adapter")
    network = AutoModelForCausalLM.from_pretrained(base)
    out = peft.PeftModel.from_pretrained(network, tmp_path / "adapter").eval()
    with torch.no_grad():
        assert float(out(input_ids=rows, labels=rows).loss) == pytest.approx(expected, rel=1e-5)
    for trainer in (straight, again):
        trainer.close()


def test_a_file_of_adapters_alone_is_small(tmp_path: Path) -> None:
    llama(width=64).save_pretrained(tmp_path / "wide")
    sizes = []
    for alone in (True, False):
        model = HuggingFaceModel(
            AutoModelForCausalLM.from_pretrained(tmp_path / "wide"),
            peft_config=lora(target_modules=["q_proj"]),
            should_save_peft_only=alone,
        )
        path = tmp_path / f"{alone}.pt"
        state = Trainer(model=model, device="cpu").state
        sizes.append(Path(save_checkpoint(state, str(path), weights_only=True)).stat().st_size)
    assert sizes[0] < sizes[1] / 10


def test_a_checkpoint_with_base_and_adapters(base: Path, tmp_path: Path) -> None:
    model = adapted(base, should_save_peft_only=False)
    path = saved(model, tmp_path / "a.pt")
    # The base that the adapter names is not needed.
    moved = base.rename(tmp_path / "moved")
    network, _ = HuggingFaceModel.hf_from_composer_checkpoint(path)
    assert torch.equal(logits(network), logits(model.model))
    export(path, tmp_path / "merged", adapter="merged")
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    torch.testing.assert_close(logits(merged), logits(model.model), rtol=0, atol=1e-5)
    export(path, tmp_path / "alone", adapter="alone")
    held = load_file(tmp_path / "alone" / "adapter_model.safetensors")
    assert all("lora_" in name for name in held)
    # Into a model that would save adapters alone: all is there, so it loads.
    other = HuggingFaceModel(AutoModelForCausalLM.from_pretrained(moved), peft_config=lora())
    other.load_state_dict(read_checkpoint(path)["state"]["model"])
    assert torch.equal(logits(other.model), logits(model.model))


def test_the_base_is_asked_for_where_it_is_not_found(base: Path, tmp_path: Path) -> None:
    model = adapted(base)
    path = saved(model, tmp_path / "a.pt")
    moved = base.rename(tmp_path / "moved")
    with pytest.raises(ValueError, match="base_model"):
        HuggingFaceModel.hf_from_composer_checkpoint(path)
    with pytest.raises(ValueError, match="base_model"):
        export(path, tmp_path / "out", adapter="merged")
    for given in (moved, AutoModelForCausalLM.from_pretrained(moved)):
        network, _ = HuggingFaceModel.hf_from_composer_checkpoint(path, base_model=given)
        assert torch.equal(logits(network), logits(model.model))
    with pytest.raises(ValueError, match=r"must be one of \('alone', 'merged'\)"):
        export(path, tmp_path / "out", adapter="both")
    plain = saved(HuggingFaceModel(llama()), tmp_path / "b.pt")
    with pytest.raises(ValueError, match="has no adapters"):
        export(plain, tmp_path / "out", adapter="merged")


def test_rows_that_the_vocabulary_got_are_saved_with_the_adapter(
    base: Path, tmp_path: Path
) -> None:
    tokenizer = words()
    tokenizer.add_tokens([f"new{i}" for i in range(7)])
    network = AutoModelForCausalLM.from_pretrained(base)
    model = HuggingFaceModel(
        network, tokenizer=tokenizer, allow_embedding_resizing=True, peft_config=lora()
    )
    path = saved(model, tmp_path / "a.pt")
    rows = len(tokenizer)
    assert model.model.get_input_embeddings().weight.shape[0] == rows > 24
    new = torch.tensor([[rows - 1, 5, rows - 2]])
    again, _ = HuggingFaceModel.hf_from_composer_checkpoint(path)
    with torch.no_grad():
        want = model.model.eval()(input_ids=new).logits
        assert torch.equal(again.eval()(input_ids=new).logits, want)
        export(path, tmp_path / "merged", adapter="merged")
        merged = AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
        torch.testing.assert_close(merged(input_ids=new).logits, want, rtol=0, atol=1e-5)


def test_a_ready_model_of_peft_and_several_adapters(base: Path, tmp_path: Path) -> None:
    network = peft.get_peft_model(
        AutoModelForCausalLM.from_pretrained(base), lora(), adapter_name="first"
    )
    network.add_adapter("second", lora(r=1, target_modules=["k_proj"]))
    network.set_adapter("second")
    model = HuggingFaceModel(network, tokenizer=words())
    assert model.shift_labels
    assert model.using_peft
    path = saved(model, tmp_path / "a.pt")
    held = read_checkpoint(path)["state"]["model"]
    assert {name.split(".")[-2] for name in held} == {"first", "second"}
    again, _ = HuggingFaceModel.hf_from_composer_checkpoint(path)
    assert set(again.peft_config) == {"first", "second"}
    assert again.active_adapter == "second"
    assert torch.equal(logits(again), logits(model.model))
    again.set_adapter("first")
    model.model.set_adapter("first")
    assert torch.equal(logits(again), logits(model.model))
    with pytest.raises(ValueError, match="already"):
        HuggingFaceModel(network, peft_config=lora())
    with pytest.raises(TypeError, match="LoraConfig"):
        HuggingFaceModel(llama(), peft_config={"r": 2})


def test_a_learned_prompt_counts_and_is_passed_over(base: Path) -> None:
    """The first label is predicted from the prompt, so it counts, in loss and metrics."""
    from composer.metrics import LanguageCrossEntropy

    model = adapted(base, ADAPTERS["prompt"], use_logits=True).eval()
    batch = {"input_ids": ids(), "labels": ids(), "attention_mask": torch.ones_like(ids())}
    outputs = model(batch)
    each = -outputs.logits.log_softmax(-1)[0, 2:-1][torch.arange(11), ids()[0]]
    torch.testing.assert_close(model.loss(outputs, batch), each.mean())
    assert model.num_loss_tokens(batch) == 11
    metric = LanguageCrossEntropy()
    model.update_metric(batch, model.eval_forward(batch), metric)
    torch.testing.assert_close(metric.compute().double(), each.mean().detach().double())
    prefix = adapted(base, ADAPTERS["prefix"])
    assert prefix.num_loss_tokens(batch) == 10


def test_one_adapter_by_names_alone(base: Path) -> None:
    model = adapted(base, lora(modules_to_save=["lm_head"]), should_save_peft_only=False)
    weights = model.model.state_dict()
    with torch.no_grad():
        want = peft.get_peft_model_state_dict(model.model, save_embedding_layers=False)
    config = model.model.peft_config["default"]
    found = filter_state_dict_peft(weights, config)
    assert set(found) == set(want)
    assert all(torch.equal(found[name], want[name]) for name in want)
    named = filter_state_dict_peft(weights, config, "default", False)
    assert {n for n in named if n in weights} == set(named)
    assert filter_state_dict_peft(weights, config, "other") == {}


def test_adapters_in_a_model_that_is_a_part_of_another(base: Path) -> None:
    class Outer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = adapted(base)
            self.own = torch.nn.Linear(1, 1)

    outer = Outer()
    state = outer.state_dict()
    assert {name.split(".")[0] for name in state} == {"inner", "own"}
    assert all("lora_" in name for name in state if name.startswith("inner"))
    outer.load_state_dict(state, strict=True)
    with pytest.raises(RuntimeError, match=r"own\.bias"):
        outer.load_state_dict({n: v for n, v in state.items() if n != "own.bias"})


# ---- saving costs little ----------------------------------------------------------------------


def test_the_files_of_a_tokenizer_are_gathered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = words()
    model = HuggingFaceModel(llama(), tokenizer=tokenizer)
    calls = []
    save = tokenizer.save_pretrained
    monkeypatch.setattr(
        tokenizer, "save_pretrained", lambda *a, **k: (calls.append(1), save(*a, **k))[1]
    )
    first = model.integrations()["huggingface"]["tokenizer"]
    assert model.integrations()["huggingface"]["tokenizer"] is first
    assert len(calls) == 1
    tokenizer.add_tokens(["later"])
    later = model.integrations()["huggingface"]["tokenizer"]
    assert len(calls) == 2
    assert load_tokenizer(later)("later")["input_ids"] == tokenizer("later")["input_ids"]


# ---- the command ------------------------------------------------------------------------------


def command(*words: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    status = main(["checkpoint", "export", *words])
    out, err = capsys.readouterr()
    return status, out, err


def test_the_command_writes_a_folder(
    trained: tuple[HuggingFaceModel, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, path = trained
    words = [str(path), "--format", "huggingface", "--output", str(tmp_path / "out")]
    status, out, _ = command(*words, "--dtype", "float16", capsys=capsys)
    assert status == 0
    # Which files a tokenizer has depends on the release of transformers.
    files = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert ", ".join(files) in out
    ours = {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json"}
    assert ours <= set(files)
    assert "lm_head.weight is model.embed_tokens.weight, saved once" in out
    held = load_file(tmp_path / "out" / "model.safetensors")
    want = model.model.state_dict()
    assert all(torch.equal(v, want[k].half()) for k, v in held.items())
    status, _, err = command(*words, capsys=capsys)
    assert status == 2
    assert "no empty folder" in err
    # A program takes the folder with the ordinary loaders.
    network = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype=torch.float16)
    assert network.dtype is torch.float16


def test_the_command_merges_adapters(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = adapted(base)
    path = saved(model, tmp_path / "a.pt")
    moved = base.rename(tmp_path / "moved")
    words = [str(path), "--format", "huggingface", "--to", str(tmp_path / "out")]
    status, _, err = command(*words, "--adapter", "merged", capsys=capsys)
    assert status == 1
    assert "base_model" in err
    status, _, _ = command(*words, "--adapter", "merged", "--base", str(moved), capsys=capsys)
    assert status == 0
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    torch.testing.assert_close(logits(merged), logits(model.model), rtol=0, atol=1e-5)


def test_the_command_says_what_it_cannot_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.pt"
    torch.save({"format": 1, "state": {"model": {"a": torch.ones(1)}}}, other)
    words = [str(other), "--to", str(tmp_path / "out")]
    status, _, err = command(*words, "--format", "huggingface", capsys=capsys)
    assert status == 1
    assert "other.pt holds no model of Hugging Face" in err
    whole = ["--format", "huggingface", "--overwrite"]
    for wrong in (["--adapter", "alone"], ["--base", "x"], whole):
        status, _, err = command(*words, *wrong, capsys=capsys)
        assert status == 2
        assert wrong[-1] in err or wrong[0] in err
    assert not (tmp_path / "out").exists()


def test_the_page_about_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "huggingface.md").read_text()
    names: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        exec(block, names)
    for line in re.findall(r"^composer (checkpoint export .*)$", page, re.MULTILINE):
        words = line.replace("--to ", "--to by-command-").split()
        assert main(words) == 0
    assert (tmp_path / "by-command-merged" / "model.safetensors").is_file()
    want = names["adapted"].eval()(**names["prompts"]).logits
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "by-command-merged")
    torch.testing.assert_close(merged(**names["prompts"]).logits, want, rtol=0, atol=1e-5)


# ---- Composer 0.32 ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def truth() -> dict[str, Any]:
    return json.loads((OLD / "truth.json").read_text())


def test_a_whole_model_of_composer_0_32(truth: dict[str, Any], tmp_path: Path) -> None:
    network, tokenizer = HuggingFaceModel.hf_from_composer_checkpoint(OLD / "whole.pt")
    row = tokenizer(truth["sentence"], return_tensors="pt")["input_ids"]
    assert row[0].tolist() == truth["ids"]
    want = torch.tensor(truth["whole"])
    with torch.no_grad():
        torch.testing.assert_close(network.eval()(row).logits[0], want, rtol=0, atol=1e-6)
    export(OLD / "whole.pt", tmp_path / "out")
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert (
        AutoTokenizer.from_pretrained(tmp_path / "out")(truth["sentence"])["input_ids"]
        == (truth["ids"])
    )
    raw = torch.load(OLD / "whole.pt", weights_only=False)["state"]["model"]
    for name, tensor in again.state_dict().items():
        assert torch.equal(tensor, raw[f"model.{name}"]), name
    with torch.no_grad():
        assert torch.equal(again(row).logits, network(row).logits)
    # And back: into a run that loads the old file itself.
    model = HuggingFaceModel(again, tokenizer=tokenizer)
    with torch.no_grad():
        model.model.transformer.wte.weight.zero_()
    Trainer(model=model, load_path=str(OLD / "whole.pt"), load_weights_only=True, device="cpu")
    with torch.no_grad():
        torch.testing.assert_close(model.model.eval()(row).logits[0], want, rtol=0, atol=1e-6)


def test_adapters_of_composer_0_32(truth: dict[str, Any], tmp_path: Path) -> None:
    export(OLD / "whole.pt", tmp_path / "base")
    row, want = torch.tensor([truth["ids"]]), torch.tensor(truth["adapter"])
    assert not torch.allclose(want, torch.tensor(truth["whole"]), atol=1e-2)
    network, _ = HuggingFaceModel.hf_from_composer_checkpoint(
        OLD / "adapter.pt", base_model=tmp_path / "base"
    )
    with torch.no_grad():
        torch.testing.assert_close(network.eval()(row).logits[0], want, rtol=0, atol=1e-6)
    export(OLD / "adapter.pt", tmp_path / "alone")
    loaded = peft.PeftModel.from_pretrained(
        AutoModelForCausalLM.from_pretrained(tmp_path / "base"), tmp_path / "alone"
    )
    export(OLD / "adapter.pt", tmp_path / "merged", adapter="merged", base_model=tmp_path / "base")
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    with torch.no_grad():
        assert torch.equal(loaded(row).logits, network(row).logits)
        torch.testing.assert_close(merged(row).logits[0], want, rtol=0, atol=1e-5)
