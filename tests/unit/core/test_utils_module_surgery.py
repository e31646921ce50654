"""Replacing modules and keeping optimizers in step."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from composer.utils.module_surgery import (
    count_module_instances,
    replace_module_classes,
    update_params_in_optimizer,
)
from composer.utils.modules import is_model_ddp, is_model_fsdp, is_model_fsdp2, model_eval_mode


class MyLinear(nn.Linear):
    pass


def small_model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Sequential(nn.Linear(3, 3), nn.ReLU()))


def fresh(module: nn.Module, index: int) -> nn.Module:
    assert isinstance(module, nn.Linear)
    return nn.Linear(module.in_features, module.out_features)


def ids(optimizer: torch.optim.Optimizer) -> list[list[int]]:
    return [[id(p) for p in group["params"]] for group in optimizer.param_groups]


def ids_of(*parameters: nn.Parameter) -> list[int]:
    return [id(parameter) for parameter in parameters]


def one_step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    model(torch.ones(4, 2)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    optimizer.load_state_dict(optimizer.state_dict())


# ---- counting and replacing ---------------------------------------------------------------------


def test_count() -> None:
    shared = nn.ReLU()
    model = nn.Sequential(shared, shared, nn.Sequential(nn.ReLU()), MyLinear(1, 1))
    assert count_module_instances(model, nn.ReLU) == 2
    assert count_module_instances(model, nn.Linear) == 1
    assert count_module_instances(model, (nn.ReLU, nn.Linear)) == 3
    assert count_module_instances(nn.Linear(1, 1), nn.Linear) == 1


def test_replaces_by_index_and_leaves_declined() -> None:
    model = small_model()
    old = [model[0], model[2][0]]
    seen: list[int] = []

    def second_only(module: nn.Module, index: int) -> nn.Module | None:
        seen.append(index)
        return nn.Identity() if index == 1 else None

    replaced = replace_module_classes(model, {nn.Linear: second_only})
    assert seen == [0, 1]
    assert model[0] is old[0]
    assert isinstance(model[2][0], nn.Identity)
    assert replaced == {old[1]: model[2][0]}


def test_indices_go_on_counting() -> None:
    indices: dict[Any, int] = {}
    seen: list[int] = []
    for _ in range(2):
        replace_module_classes(
            small_model(), {nn.Linear: lambda m, i: seen.append(i)}, indices=indices
        )
    assert seen == [0, 1, 2, 3]
    assert indices == {nn.Linear: 4}


def test_nearest_class_is_asked_first() -> None:
    model = nn.Sequential(MyLinear(1, 1), nn.Linear(1, 1))
    replace_module_classes(
        model,
        {
            nn.Module: lambda m, i: nn.Identity(),
            nn.Linear: lambda m, i: nn.Tanh(),
            MyLinear: lambda m, i: None,
        },
    )
    assert [type(m) for m in model] == [nn.Tanh, nn.Tanh]


def test_shared_modules_are_replaced_everywhere() -> None:
    shared = nn.Linear(2, 2)
    model = nn.Sequential(shared, nn.Sequential(shared), shared)
    replaced = replace_module_classes(model, {nn.Linear: fresh})
    assert model[0] is model[1][0] is model[2] is replaced[shared]
    assert len(replaced) == 1


def test_the_model_itself_is_left_alone() -> None:
    model = nn.Linear(1, 1)
    assert replace_module_classes(model, {nn.Linear: fresh}) == {}


class Wrapper(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner
        self.act = nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(self.inner(x))


@pytest.mark.parametrize("recurse", [False, True])
def test_a_wrapper_keeps_what_it_wraps(recurse: bool) -> None:
    model = small_model()
    old = model[0]
    replace_module_classes(
        model,
        {nn.Linear: lambda m, i: Wrapper(m), nn.ReLU: lambda m, i: nn.Tanh()},
        recurse_on_replacements=recurse,
    )
    assert isinstance(model[0], Wrapper)
    assert model[0].inner is old
    assert isinstance(model[0].act, nn.Tanh if recurse else nn.ReLU)
    assert isinstance(model[2][0], Wrapper)
    assert isinstance(model[1], nn.Tanh)


@pytest.mark.parametrize("training", [True, False])
def test_mode_and_type_are_kept(training: bool) -> None:
    model = small_model().to(torch.bfloat16).train(training)
    replace_module_classes(model, {nn.Linear: lambda m, i: Wrapper(fresh(m, i))})
    assert all(module.training == training for module in model.modules())
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}


def test_the_mode_of_a_kept_part_stays() -> None:
    model = nn.Sequential(nn.BatchNorm1d(2))
    model.train()
    model[0].eval()
    replace_module_classes(model, {nn.BatchNorm1d: lambda m, i: nn.Sequential(m, nn.ReLU())})
    inner = model[0]
    assert not inner[0].training
    assert not inner[1].training


def test_a_type_chosen_by_the_policy_stays() -> None:
    model = nn.Sequential(nn.Linear(2, 2)).to(torch.float64)
    replace_module_classes(model, {nn.Linear: lambda m, i: fresh(m, i).to(torch.float16)})
    assert model[0].weight.dtype == torch.float16


def test_device_is_kept() -> None:
    model = nn.Sequential(nn.Linear(2, 2, device="meta"), nn.ReLU())
    replace_module_classes(model, {nn.Linear: fresh, nn.ReLU: lambda m, i: nn.PReLU()})
    assert {p.device.type for p in model.parameters()} == {"meta"}


def test_ddp_is_refused() -> None:
    class FakeDDP(nn.parallel.DistributedDataParallel):
        def __init__(self, module: nn.Module) -> None:
            nn.Module.__init__(self)
            self.module = module

    model = FakeDDP(small_model())
    assert is_model_ddp(model)
    with pytest.raises(TypeError, match="DistributedDataParallel"):
        replace_module_classes(nn.Sequential(model), {nn.Linear: fresh})


# ---- optimizers ---------------------------------------------------------------------------------


def test_one_group_keeps_its_order() -> None:
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    one_step(model, optimizer)
    old_first = model[0].weight
    replace_module_classes(
        model, {nn.Linear: lambda m, i: fresh(m, i) if i == 0 else None}, optimizer
    )
    assert ids(optimizer) == [ids_of(*model.parameters())]
    assert old_first not in optimizer.state
    assert model[2][0].weight in optimizer.state
    one_step(model, optimizer)


def test_groups_are_kept_by_name() -> None:
    model = small_model()
    optimizer = torch.optim.SGD(
        [
            {"params": [model[0].weight, model[2][0].weight], "weight_decay": 0.1},
            {"params": [model[2][0].bias, model[0].bias], "weight_decay": 0.0},
        ],
        lr=0.1,
    )
    replace_module_classes(model, {nn.Linear: fresh}, [optimizer])
    assert ids(optimizer) == [
        ids_of(model[0].weight, model[2][0].weight),
        ids_of(model[2][0].bias, model[0].bias),
    ]


def test_several_optimizers_each_keep_their_part() -> None:
    model = small_model()
    first = torch.optim.SGD(model[0].parameters(), lr=0.1)
    second = torch.optim.Adam(model[2].parameters(), lr=0.1)
    replace_module_classes(model, {nn.Linear: fresh}, (first, second))
    assert ids(first) == [ids_of(*model[0].parameters())]
    assert ids(second) == [ids_of(*model[2].parameters())]


def test_new_extra_parameters_follow_their_module() -> None:
    model = small_model()
    optimizer = torch.optim.SGD(
        [{"params": model[0].parameters()}, {"params": model[2].parameters()}], lr=0.1
    )

    class Scaled(Wrapper):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__(inner)
            self.scale = nn.Parameter(torch.ones(1))

    replace_module_classes(model, {nn.Linear: lambda m, i: Scaled(m)}, optimizer)
    assert ids(optimizer) == [
        ids_of(model[0].inner.weight, model[0].inner.bias, model[0].scale),
        ids_of(model[2][0].inner.weight, model[2][0].inner.bias, model[2][0].scale),
    ]
    one_step(model, optimizer)


def test_reused_parameters_keep_place_and_state() -> None:
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    one_step(model, optimizer)
    buffer = optimizer.state[model[0].weight]["momentum_buffer"]

    def reuse(module: nn.Module, index: int) -> nn.Module:
        new = MyLinear(2, 3)
        new.weight, new.bias = module.weight, module.bias  # type: ignore[assignment]
        return new

    before = ids(optimizer)
    replace_module_classes(
        model, {nn.Linear: lambda m, i: reuse(m, i) if i == 0 else None}, optimizer
    )
    assert ids(optimizer) == before
    assert optimizer.state[model[0].weight]["momentum_buffer"] is buffer


def test_tied_weights_stay_while_they_are_used() -> None:
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.ReLU(), MyLinear(2, 2, bias=False))
    model[2].weight = model[0].weight
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    replace_module_classes(model, {MyLinear: lambda m, i: nn.Linear(2, 2, bias=False)}, optimizer)
    assert ids(optimizer) == [ids_of(model[0].weight, model[2].weight)]
    # Both users of a tied weight are replaced: it goes, and both new ones come.
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    model[1].weight = model[0].weight
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    replace_module_classes(model, {nn.Linear: lambda m, i: nn.Linear(2, 2, bias=False)}, optimizer)
    assert ids(optimizer) == [ids_of(model[0].weight, model[1].weight)]


def test_frozen_replacements_do_not_enter() -> None:
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def frozen(module: nn.Module, index: int) -> nn.Module:
        return fresh(module, index).requires_grad_(False)

    replace_module_classes(
        model, {nn.Linear: lambda m, i: frozen(m, i) if i == 0 else None}, optimizer
    )
    assert ids(optimizer) == [ids_of(*model[2].parameters())]


def test_a_part_that_is_not_optimized_stays_out() -> None:
    model = small_model()
    optimizer = torch.optim.SGD(model[2].parameters(), lr=0.1)
    replace_module_classes(model, {nn.Linear: fresh}, optimizer)
    assert ids(optimizer) == [ids_of(*model[2].parameters())]


def test_trainable_parts_of_a_frozen_module_enter() -> None:
    model = small_model()
    model[0].requires_grad_(False)
    optimizer = torch.optim.SGD(model[2].parameters(), lr=0.1)
    replace_module_classes(
        model, {nn.Linear: lambda m, i: fresh(m, i) if i == 0 else None}, optimizer
    )
    trainable = {id(p) for p in model.parameters() if p.requires_grad}
    assert set(ids(optimizer)[0]) == trainable


def test_modules_without_parameters_may_get_some() -> None:
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    replace_module_classes(model, {nn.ReLU: lambda m, i: nn.PReLU()}, optimizer)
    assert set(ids(optimizer)[0]) == {id(p) for p in model.parameters()}
    one_step(model, optimizer)


def test_an_unclear_group_raises_and_changes_nothing() -> None:
    model = small_model()
    optimizer = torch.optim.SGD(
        [{"params": model[0].parameters()}, {"params": model[2].parameters()}], lr=0.1
    )
    before, old = ids(optimizer), list(model.modules())
    with pytest.raises(RuntimeError, match="several of the 2 parameter groups"):
        replace_module_classes(model, {nn.ReLU: lambda m, i: nn.PReLU()}, optimizer)
    assert ids(optimizer) == before
    assert list(model.modules()) == old


def test_group_lists_and_names_stay_the_same_objects() -> None:
    model = small_model()
    optimizer = torch.optim.SGD(model.named_parameters(), lr=0.1)
    params, names = optimizer.param_groups[0]["params"], optimizer.param_groups[0]["param_names"]
    replace_module_classes(
        model,
        {nn.Linear: lambda m, i: Wrapper(fresh(m, i)) if i == 1 else None},
        optimizer,
    )
    assert optimizer.param_groups[0]["params"] is params
    assert optimizer.param_groups[0]["param_names"] is names
    assert names == [name for name, _ in model.named_parameters()]
    assert ids_of(*params) == ids_of(*model.parameters())


def test_update_params_in_optimizer() -> None:
    old, new = nn.Linear(1, 1), nn.Linear(1, 1)
    other = nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([{"params": [old.bias]}, {"params": [other, old.weight]}], lr=0.1)
    update_params_in_optimizer(old.parameters(), new.parameters(), optimizer)
    assert ids(optimizer) == [ids_of(new.bias), ids_of(other, new.weight)]
    # Parameters in both lists stay.
    update_params_in_optimizer([new.weight, new.bias], [new.weight, old.bias], [optimizer])
    assert ids(optimizer) == [ids_of(old.bias), ids_of(other, new.weight)]
    # Fewer: it goes.
    update_params_in_optimizer([other], [], optimizer)
    assert ids(optimizer) == [ids_of(old.bias), ids_of(new.weight)]
    # A matrix goes where the matrices are, as long as they are together.
    wide = nn.Linear(2, 2, False)
    update_params_in_optimizer([old.bias, new.weight], wide.parameters(), optimizer)
    assert ids(optimizer) == [ids_of(), ids_of(wide.weight)]
    apart = [nn.Parameter(torch.ones(1, 1)) for _ in range(2)]
    optimizer = torch.optim.SGD([{"params": [p]} for p in apart], lr=0.1)
    with pytest.raises(RuntimeError, match="several"):
        update_params_in_optimizer(apart, [wide.weight], optimizer)
    assert ids(optimizer) == [ids_of(apart[0]), ids_of(apart[1])]
    one = torch.optim.SGD([other], lr=0.1)
    update_params_in_optimizer([other], old.parameters(), one)
    assert ids(one) == [ids_of(old.weight, old.bias)]


# ---- modes --------------------------------------------------------------------------------------


def test_model_eval_mode_restores_every_part() -> None:
    model = small_model()
    model[2].eval()

    def fail_inside() -> None:
        with model_eval_mode(model):
            assert not any(module.training for module in model.modules())
            raise KeyError

    with pytest.raises(KeyError):
        fail_inside()
    assert model.training
    assert model[0].training
    assert not model[2].training
    assert not model[2][0].training


def test_plain_models_are_not_wrapped() -> None:
    model = small_model()
    assert not any(ask(model) for ask in (is_model_ddp, is_model_fsdp, is_model_fsdp2))
