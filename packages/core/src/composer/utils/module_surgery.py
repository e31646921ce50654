"""Replace modules inside a model, and keep the optimizers in step.

After an operation the optimizers hold exactly the trainable parameters that the model then has in
place of those they held before, in the same groups and at the same places. An optimizer that covers
only a part of a model goes on covering that part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from composer.utils.iteration import ensure_tuple

__all__ = [
    "ReplacementFunction",
    "check_surgery",
    "count_module_instances",
    "replace_module_classes",
    "update_params_in_optimizer",
]

#: Called with a module and how many of its class came before; returns its replacement, or ``None``
#: to leave it.
ReplacementFunction: TypeAlias = Callable[[torch.nn.Module, int], torch.nn.Module | None]

_Named: TypeAlias = list[tuple[str, torch.nn.Parameter]]
_Place: TypeAlias = tuple[int, int]


def check_surgery(
    model: Any, optimizers: Any = None, *, name: str = "model", several: str = "optimizers"
) -> None:
    """Refuse what is no model, or no optimizers, before anything is changed.

    Args:
        model: The model.
        optimizers: An optimizer, a sequence of them, or ``None``.
        name: What the caller calls the model.
        several: What the caller calls the optimizers.

    Raises:
        TypeError: If one of them is something else.

    Example:
        >>> check_surgery(torch.nn.Linear(1, 1))
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"{name} must be a torch.nn.Module, not {type(model).__name__}")
    _check_optimizers(optimizers, several)


def _check_optimizers(optimizers: Any, name: str = "optimizers") -> None:
    for one in ensure_tuple(optimizers):
        if not isinstance(one, Optimizer):
            raise TypeError(
                f"{name} must be a torch.optim.Optimizer or a sequence of them, and this is or "
                f"holds a {type(one).__name__}"
            )


def count_module_instances(
    module: torch.nn.Module,
    module_class: type[torch.nn.Module] | tuple[type[torch.nn.Module], ...],
) -> int:
    """Count the modules of a class in a model.

    Args:
        module: The model; it counts too.
        module_class: The class, or several. Instances of subclasses count.

    Returns:
        The number of distinct modules.

    Example:
        >>> model = torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.ReLU())
        >>> count_module_instances(model, torch.nn.Linear)
        1
    """
    return sum(isinstance(one, module_class) for one in module.modules())


def replace_module_classes(
    module: torch.nn.Module,
    policies: Mapping[type[torch.nn.Module], ReplacementFunction],
    optimizers: Optimizer | Sequence[Optimizer] | None = None,
    recurse_on_replacements: bool = False,
    indices: dict[Any, int] | None = None,
) -> dict[torch.nn.Module, torch.nn.Module]:
    """Replace the modules of some classes inside a model, in place.

    A module that is used in several places is replaced by the same module in all of them. A
    replacement gets the device and the training mode of what it replaces, and its floating-point
    type where the policy used torch's default. The model itself is never replaced, only what is
    inside it.

    Args:
        module: The model.
        policies: Class to function. The class that is nearest in a module's ancestry is asked
            first; if its function returns ``None``, the next one is.
        optimizers: Optimizers to keep in step. Give those that exist already.
        recurse_on_replacements: Look inside replacements too.
        indices: Class to the index that its next module gets. Pass the same dictionary to several
            calls to go on counting; it is updated.

    Returns:
        The replaced modules and their replacements.

    Raises:
        TypeError: If the model or an optimizer is none, or the model is wrapped for several ranks
            already.
        RuntimeError: If new parameters cannot be assigned to parameter groups. The model is then as
            it was.

    Example:
        >>> model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
        >>> replaced = replace_module_classes(model, {torch.nn.ReLU: lambda m, i: torch.nn.GELU()})
        >>> model[1]
        GELU(approximate='none')
    """
    check_surgery(module, optimizers, name="module")
    for one in module.modules():
        if isinstance(one, DistributedDataParallel):
            raise TypeError(
                "Modules cannot be replaced after the model was wrapped in "
                "DistributedDataParallel, since its buckets hold the old parameters. Replace them "
                "before wrapping."
            )
    surgeon = _Surgeon(policies, {} if indices is None else indices, recurse_on_replacements)
    before = dict.fromkeys(map(id, module.parameters()))
    # The old modules are asked before the replacement, which may take their parts.
    old_parameters = {id(one): list(one.named_parameters()) for one in module.modules()}
    fallback = _single_device(module)
    try:
        surgeon.visit(module, fallback)
        if optimizers is not None and surgeon.replaced:
            pairs: list[tuple[_Named, _Named]] = []
            for old, new in surgeon.replaced.items():
                old_named = old_parameters.get(id(old)) or list(old.named_parameters())
                new_named = list(new.named_parameters())
                pairs.append((old_named, [(n, p) for n, p in new_named if id(p) not in before]))
            present = {id(parameter) for parameter in module.parameters()}
            names = {id(parameter): name for name, parameter in module.named_parameters()}
            gone = {i for i in before if i not in present}
            _update_optimizers(pairs, gone, names, ensure_tuple(optimizers))
    except BaseException:
        surgeon.undo()
        raise
    return surgeon.replaced


class _Surgeon:
    """Walks a model and replaces; remembers enough to put everything back."""

    def __init__(
        self,
        policies: Mapping[type[torch.nn.Module], ReplacementFunction],
        indices: dict[Any, int],
        recurse: bool,
    ) -> None:
        self.replaced: dict[torch.nn.Module, torch.nn.Module] = {}
        self._policies = policies
        self._indices = indices
        self._recurse = recurse
        self._visited: set[int] = set()
        self._declined: set[int] = set()
        self._edits: list[tuple[torch.nn.Module, str, torch.nn.Module]] = []

    def visit(
        self,
        parent: torch.nn.Module,
        device: torch.device | None,
        keep: frozenset[int] = frozenset(),
    ) -> None:
        """Replace the children of a module, except those that ``keep`` holds the ids of."""
        if id(parent) in self._visited:
            return
        self._visited.add(id(parent))
        # Not named_children, which leaves out the second name of a shared child.
        for name, child in list(parent._modules.items()):
            if child is None or id(child) in keep:
                continue
            new = self.replaced.get(child) or self._ask(child, device)
            if new is None or new is child:
                self.visit(child, device, keep)
                continue
            self.replaced[child] = new
            self._edits.append((parent, name, child))
            setattr(parent, name, new)
            if self._recurse:
                # What a replacement wraps must not be replaced by the wrapper once more.
                self.visit(new, device, keep | {id(child)})
            else:
                self._visited.update(id(inner) for inner in new.modules())

    def undo(self) -> None:
        """Put every replaced module back."""
        for parent, name, child in reversed(self._edits):
            setattr(parent, name, child)

    def _ask(self, child: torch.nn.Module, device: torch.device | None) -> torch.nn.Module | None:
        if id(child) in self._declined:
            return None
        for kind in type(child).__mro__:
            policy = self._policies.get(kind)
            if policy is None:
                continue
            index = self._indices.get(kind, 0)
            self._indices[kind] = index + 1
            facts = _Facts(child, device)
            new = policy(child, index)
            if new is not None and new is not child:
                facts.pass_on(new)
                return new
        self._declined.add(id(child))
        return None


class _Facts:
    """What a replacement inherits, read before the policy may take the old module apart."""

    def __init__(self, module: torch.nn.Module, fallback: torch.device | None) -> None:
        self.training = module.training
        self.device = _single_device(module) or fallback
        self.dtype = _single_dtype(module)
        self.modules = {id(one) for one in module.modules()}

    def pass_on(self, new: torch.nn.Module) -> None:
        for one in new.modules():
            # A kept part may be in another mode on purpose, as frozen statistics are.
            if id(one) not in self.modules:
                one.training = self.training
        dtype = None
        if self.dtype is not None and self.dtype != torch.get_default_dtype():
            floating = {p.dtype for p in new.parameters() if p.is_floating_point()}
            # Another type than torch's default was chosen by the policy and stays.
            if floating <= {torch.get_default_dtype(), self.dtype}:
                dtype = self.dtype
        if self.device is not None or dtype is not None:
            new.to(device=self.device, dtype=dtype)


def _single_device(module: torch.nn.Module) -> torch.device | None:
    devices = {p.device for p in module.parameters()} or {b.device for b in module.buffers()}
    return devices.pop() if len(devices) == 1 else None


def _single_dtype(module: torch.nn.Module) -> torch.dtype | None:
    dtypes = {p.dtype for p in module.parameters() if p.is_floating_point()}
    return dtypes.pop() if len(dtypes) == 1 else None


def update_params_in_optimizer(
    old_params: Iterable[torch.nn.Parameter],
    new_params: Iterable[torch.nn.Parameter],
    optimizers: Optimizer | Sequence[Optimizer],
) -> None:
    """Put new parameters into optimizers in place of old ones.

    Parameters in both lists keep their place and their state. New ones take the group and the
    place of the old ones that are gone: if those are in several groups, old and new are matched in
    order if there are as many of each, else matrices go where matrices were and vectors where
    vectors were. New parameters that need no gradient join only in
    place of such.

    Args:
        old_params: The parameters of the old module.
        new_params: The parameters of the new module.
        optimizers: The optimizers to update.

    Raises:
        TypeError: If an optimizer is none.
        RuntimeError: If the group of a new parameter is not clear. The optimizers are then as they
            were.

    Example:
        >>> old, new = torch.nn.Linear(1, 1), torch.nn.Linear(1, 1)
        >>> optimizer = torch.optim.SGD(old.parameters(), lr=0.1)
        >>> update_params_in_optimizer(old.parameters(), new.parameters(), optimizer)
        >>> optimizer.param_groups[0]["params"][0] is new.weight
        True
    """
    _check_optimizers(optimizers)
    old, new = list(old_params), list(new_params)
    old_ids, new_ids = set(map(id, old)), set(map(id, new))
    gone = [parameter for parameter in old if id(parameter) not in new_ids]
    added = [parameter for parameter in new if id(parameter) not in old_ids]
    kept = [parameter for parameter in old if id(parameter) in new_ids]
    # Equal names are how old and new ones are matched; without names their order takes that part.
    matched = len(gone) == len(added)
    old_named = [(str(i), p) for i, p in enumerate(gone)] + [("kept", p) for p in kept]
    new_named = [(str(i) if matched else "new", p) for i, p in enumerate(added)]
    removed = {id(parameter) for parameter in gone}
    _update_optimizers([(old_named, new_named)], removed, {}, ensure_tuple(optimizers))


def _update_optimizers(
    pairs: Iterable[tuple[_Named, _Named]],
    gone: set[int],
    names: Mapping[int, str],
    optimizers: Sequence[Optimizer],
) -> None:
    """Plan all moves, then make them, so that an error changes nothing."""
    places: dict[int, _Place] = {}
    for number, optimizer in enumerate(optimizers):
        for group_number, group in enumerate(optimizer.param_groups):
            for parameter in group["params"]:
                places.setdefault(id(parameter), (number, group_number))
    # Group -> old parameter -> what comes right after it; the key None is the end of the group.
    plan: dict[_Place, dict[int | None, list[torch.nn.Parameter]]] = {}
    planned = set(places)
    for old, new in pairs:
        for name, parameter in new:
            if id(parameter) in planned:
                continue
            found = _find_place(name, parameter, old, gone, places, optimizers)
            if found is not None:
                place, anchor = found
                plan.setdefault(place, {}).setdefault(anchor, []).append(parameter)
                planned.add(id(parameter))
    for number, optimizer in enumerate(optimizers):
        for group_number, group in enumerate(optimizer.param_groups):
            _rebuild_group(group, plan.get((number, group_number), {}), gone, names)
        for parameter in [p for p in optimizer.state if id(p) in gone]:
            del optimizer.state[parameter]


def _find_place(
    name: str,
    parameter: torch.nn.Parameter,
    old: _Named,
    gone: set[int],
    places: Mapping[int, _Place],
    optimizers: Sequence[Optimizer],
) -> tuple[_Place, int | None] | None:
    """Find the group of a new parameter and the old one it follows; ``None`` leaves it out."""
    held = [(old_name, p) for old_name, p in old if id(p) in places]
    lost = [(old_name, p) for old_name, p in held if id(p) in gone]
    if not parameter.requires_grad and all(p.requires_grad for _, p in lost):
        return None
    namesake = next((p for old_name, p in lost if old_name == name), None)
    if namesake is not None:
        return places[id(namesake)], id(namesake)
    # Those that are gone know best where the new one belongs, then those that stay.
    for candidates in (lost, held):
        # Options differ between weights and biases more often than in any other way.
        alike = [(n, p) for n, p in candidates if (p.ndim > 1) == (parameter.ndim > 1)]
        for some in (candidates, alike):
            groups = {places[id(p)] for _, p in some}
            if len(groups) == 1:
                return groups.pop(), id(some[-1 if candidates is held else 0][1])
        if candidates:
            break
    else:
        if any(p.requires_grad for _, p in old):
            # The old module was trainable and in no group: the optimizer leaves this part alone.
            return None
        if len(optimizers) == 1 and len(optimizers[0].param_groups) == 1:
            return (0, 0), None
    num_groups = sum(len(optimizer.param_groups) for optimizer in optimizers)
    raise RuntimeError(
        f"The new parameter {name!r} of shape {tuple(parameter.shape)} could go to several of the "
        f"{num_groups} parameter groups. Replace modules before the optimizer is built, or give "
        "the parameter the name of the one that it replaces."
    )


def _rebuild_group(
    group: dict[str, Any],
    moves: Mapping[int | None, list[torch.nn.Parameter]],
    gone: set[int],
    names: Mapping[int, str],
) -> None:
    params: list[torch.nn.Parameter] = []
    param_names: list[str] = []
    old_names = group.get("param_names")
    for position, parameter in enumerate(group["params"]):
        if id(parameter) not in gone:
            params.append(parameter)
            if old_names is not None:
                param_names.append(old_names[position])
        for new in moves.get(id(parameter), ()):
            params.append(new)
            param_names.append(names.get(id(new), "param"))
    for new in moves.get(None, ()):
        params.append(new)
        param_names.append(names.get(id(new), "param"))
    # The lists are changed in place: wrappers of an optimizer hold the very same objects.
    group["params"][:] = params
    if old_names is not None:
        old_names[:] = param_names
