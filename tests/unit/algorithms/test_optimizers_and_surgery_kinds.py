"""What went wrong with surgeries, averages and wrapped optimizers elsewhere, and is right here."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from composer import Trainer
from composer.algorithms import EMA, SAM, SWA, BlurPool, Factorize
from composer.core import Callback, Logger, State, plugins
from composer.models import ComposerClassifier
from composer.optim import LinearWithWarmupScheduler


def data(batch_size: int = 4) -> DataLoader[Any]:
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(16, 2, 8, 8, generator=generator)
    return DataLoader(TensorDataset(images, torch.arange(16) % 2), batch_size)


def layers() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(2, 8, 3, stride=2, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, padding=1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 2),
    )


def trainer_of(algorithms: Any = (), **settings: Any) -> Trainer:
    model = settings.pop("model", None) or ComposerClassifier(layers(), num_classes=2)
    return Trainer(
        model=model,
        train_dataloader=data(),
        max_duration=settings.pop("max_duration", "2ep"),
        optimizers=torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
        algorithms=list(algorithms),
        seed=2,
        progress_bar=False,
        **settings,
    )


# ---- surgeries that a run leaves out ------------------------------------------------------------

SURGERIES = (
    lambda: Factorize(min_channels=4, latent_channels=0.5),
    lambda: BlurPool(min_channels=1, blur_first=False),
)


def with_surgeries(folder: Path) -> Trainer:
    trainer = trainer_of([make() for make in SURGERIES], save_folder=str(folder))
    trainer.fit()
    trainer.close()
    return trainer


def test_surgeries_that_are_left_out_are_done_as_they_were(tmp_path: Path) -> None:
    first = with_surgeries(tmp_path)
    with pytest.warns(UserWarning, match="it is applied now") as said:
        second = trainer_of(load_path=str(tmp_path / "latest-rank0.pt"), max_duration="3ep")
    texts = [str(one.message) for one in said]
    assert ["Factorize(" in texts[0], "BlurPool(" in texts[1], len(texts)] == [True, True, 2]
    ours = [type(module) for module in second.state.model.modules()]
    assert ours == [type(module) for module in first.state.model.modules()]
    batch = next(iter(data(16)))
    with torch.no_grad():
        expected = first.state.model.eval()(batch)
        assert torch.equal(second.state.model.eval()(batch), expected)
    arguments = [a.arguments() for a in second.state.algorithms]
    assert arguments == [make().arguments() for make in SURGERIES]
    second.fit()
    second.close()


def test_a_surgery_whose_package_is_gone_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_surgeries(tmp_path)
    load = plugins.load

    def hidden(group: str, name: str) -> Any:
        if name == "factorize":
            raise plugins.PluginNotFoundError(f"there is no {name} in {group}")
        return load(group, name)

    monkeypatch.setattr(plugins, "load", hidden)
    with pytest.raises(Exception, match=r"(?s)factorize") as caught:
        trainer_of(load_path=str(tmp_path / "latest-rank0.pt"))
    text = str(caught.value)
    assert "min_channels" in text or "composer-algorithms" in text, text


# ---- one list of groups -------------------------------------------------------------------------


class _Rates(Callback):
    def __init__(self) -> None:
        self.seen: list[tuple[float, float]] = []
        self.weights: list[torch.Tensor] = []

    def batch_start(self, state: State, logger: Logger) -> None:
        outer: Any = state.optimizers[0]
        inner = getattr(outer, "base_optimizer", outer)
        self.seen.append((outer.param_groups[0]["lr"], inner.param_groups[0]["lr"]))
        self.weights.append(next(state.model.parameters()).detach().clone())


@pytest.mark.parametrize("reload", [False, True])
@pytest.mark.parametrize("change", [None, "state", "groups"])
def test_a_warm_up_from_zero_reaches_the_wrapped_optimizer(
    tmp_path: Path, reload: bool, change: str | None
) -> None:
    rates = _Rates()
    settings: dict[str, Any] = {
        "schedulers": LinearWithWarmupScheduler("4ba", alpha_i=1.0, alpha_f=1.0),
        "callbacks": [rates],
        "save_folder": str(tmp_path),
        "save_interval": "1ba",
        "autoresume": True,
        "run_name": "r",
    }
    trainer = trainer_of([SAM()], **settings, max_duration="2ba" if reload else "2ep")
    optimizer: Any = trainer.state.optimizers[0]
    if change == "state":
        optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    elif change == "groups":
        optimizer.base_optimizer.param_groups = list(optimizer.base_optimizer.param_groups)
    trainer.fit()
    trainer.close()
    if reload:
        trainer = trainer_of([SAM()], **settings)
        trainer.fit()
        trainer.close()
    outer = [rate for rate, _ in rates.seen]
    assert outer == pytest.approx([0.1 * min(step / 4, 1) for step in range(8)])
    assert [rate for _, rate in rates.seen] == outer
    assert not torch.equal(rates.weights[-1], rates.weights[0])


# ---- weights for plain torch --------------------------------------------------------------------


@pytest.mark.parametrize(
    "method",
    [
        lambda: EMA(half_life="2ba"),
        lambda: SWA(swa_start="2ba", swa_end="5ba", update_interval="1ba"),
    ],
    ids=["ema", "swa"],
)
def test_averaged_weights_evaluate_alike_in_a_plain_module(tmp_path: Path, method: Any) -> None:
    seen: list[torch.Tensor] = []

    class Watch(Callback):
        def eval_batch_end(self, state: State, logger: Logger) -> None:
            seen.append(torch.as_tensor(state.outputs).clone())

    trainer = trainer_of(
        [method()], save_folder=str(tmp_path), eval_dataloader=data(16), callbacks=[Watch()]
    )
    trainer.fit()
    seen.clear()
    trainer.eval()
    file = tmp_path / "m.safetensors"
    trainer.export_for_inference("safetensors", str(file))
    trainer.close()
    from safetensors.torch import load_file

    plain = layers()
    weights = {name.removeprefix("module."): value for name, value in load_file(file).items()}
    plain.load_state_dict(weights)
    with torch.no_grad():
        torch.testing.assert_close(plain.eval()(next(iter(data(16)))[0]), seen[0])
