"""Which module of which network a surgery knows, as data that plugins add to.

A policy names a class by its path, so that nothing has to be installed or imported for it: a class
that was never imported has no instances either. Surgery on a model is all or nothing; what fails
in the middle leaves model and optimizers as they were.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from composer.utils import plugins
from composer.utils.module_surgery import check_surgery, update_params_in_optimizer

__all__ = [
    "ENCODERS",
    "GPT2",
    "GROUP",
    "SurgeryPolicy",
    "apply_policies",
    "explain_unsupported",
    "find_policies",
    "has_adapters",
    "policies_of",
    "register_policy",
]

#: Entry points of this group point to a policy, or to several.
GROUP = "composer.surgery_policies"
_FAMILIES = {
    "bert": "Bert",
    "camembert": "Camembert",
    "electra": "Electra",
    "roberta": "Roberta",
    "xlm_roberta": "XLMRoberta",
}
#: How the paths of classes of transformers begin, up to the part that tells a family's classes
#: apart: the encoders that are built alike, and GPT-2.
ENCODERS = tuple(
    f"transformers.models.{folder}.modeling_{folder}:{prefix}"
    for folder, prefix in _FAMILIES.items()
)
GPT2 = "transformers.models.gpt2.modeling_gpt2:GPT2"


@dataclass(frozen=True)
class SurgeryPolicy:
    """What a surgery does to the modules of a class.

    Args:
        method: Plugin name of the method, such as ``"alibi"``.
        module: The class, as ``package.module:Class``; its subclasses are meant too.
        apply: Called with a module, the parts and the method's options by name; changes the module
            in place, and does nothing if that was done before.
        parts: What ``apply`` has to know of the class, most often names of attributes.

    Raises:
        ValueError: If ``module`` has another form.

    Example:
        >>> SurgeryPolicy("alibi", "cool.network:Attention", print, ("num_heads",)).parts
        ('num_heads',)
    """

    method: str
    module: str
    apply: Callable[..., object]
    parts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what no class is called."""
        path, colon, name = self.module.partition(":")
        if not (path and colon and name):
            raise ValueError(f"module={self.module!r} must have the form 'package.module:Class'")


_registered: dict[tuple[str, str], SurgeryPolicy] = {}


def register_policy(policy: SurgeryPolicy) -> SurgeryPolicy:
    """Add a policy for as long as the process runs; it goes before those of plugins.

    Args:
        policy: The policy.

    Returns:
        The policy.

    Raises:
        TypeError: If it is none.

    Example:
        >>> policy = SurgeryPolicy("some_method", "cool.network:Attention", print)
        >>> register_policy(policy) is policy
        True
    """
    if not isinstance(policy, SurgeryPolicy):
        raise TypeError(f"policy={policy!r} must be a SurgeryPolicy")
    _registered[policy.method, policy.module] = policy
    return policy


def policies_of(method: str) -> dict[str, SurgeryPolicy]:
    """Collect the policies of a method.

    Of two for one class, a registered one goes before a plugin's, and a third party's plugin before
    ours. A plugin that cannot be loaded costs a warning.

    Args:
        method: Plugin name of the method.

    Returns:
        Path of a class to its policy.

    Raises:
        TypeError: If a plugin gives something else.

    Example:
        >>> "transformers.models.gpt2.modeling_gpt2:GPT2MLP" in policies_of("gated_linear_units")
        True
    """
    found: dict[str, SurgeryPolicy] = {}
    entries = sorted(plugins.entries(GROUP), key=lambda e: e.distribution != "composer-algorithms")
    for entry in entries:
        if plugins.check(entry) is not None:
            continue
        value = plugins.load(GROUP, entry.qualified_name)
        several = value if isinstance(value, (list, tuple)) else (value,)
        for policy in several:
            if not isinstance(policy, SurgeryPolicy):
                raise TypeError(
                    f"the plugin {entry.qualified_name!r} of {GROUP} gave {policy!r}; it must be a "
                    f"SurgeryPolicy or a sequence of them"
                )
            if policy.method == method:
                found[policy.module] = policy
    mine = (p for (owner, _), p in _registered.items() if owner == method)
    return {**found, **{policy.module: policy for policy in mine}}


def find_policies(model: nn.Module, method: str) -> list[tuple[nn.Module, SurgeryPolicy]]:
    """Find the modules that a method knows, each with the policy of the nearest class.

    Args:
        model: The model, which may be such a module itself.
        method: Plugin name of the method.

    Returns:
        Modules and policies.

    Raises:
        TypeError: If the model is no module.

    Example:
        >>> find_policies(nn.Linear(1, 1), "alibi")
        []
    """
    check_surgery(model)
    policies = policies_of(method)
    found = []
    for module in model.modules():
        paths = (f"{cls.__module__}:{cls.__qualname__}" for cls in type(module).__mro__)
        policy = next((policies[path] for path in paths if path in policies), None)
        if policy is not None:
            found.append((module, policy))
    return found


def apply_policies(
    model: nn.Module,
    found: Iterable[tuple[nn.Module, SurgeryPolicy]],
    optimizers: Optimizer | Sequence[Optimizer] | None,
    **options: Any,
) -> None:
    """Let policies change their modules, and keep the optimizers in step.

    Afterwards the optimizers hold the trainable parameters of what they held before: frozen and
    removed ones are taken out with their state, new ones go where those of their kind are, matrices
    with matrices and vectors with vectors.

    Args:
        model: The model.
        found: What :func:`find_policies` returned.
        optimizers: Optimizers to bring up to date.
        **options: Passed to every policy.

    Raises:
        TypeError: If the model or an optimizer is none, or the model is wrapped for several ranks
            already.

    Example:
        >>> apply_policies(nn.Linear(1, 1), [], None)
    """
    check_surgery(model, optimizers)
    if any(isinstance(module, DistributedDataParallel) for module in model.modules()):
        raise TypeError(
            "modules cannot be changed after the model was wrapped in DistributedDataParallel, "
            "whose buckets hold the old parameters; change them before wrapping"
        )
    with _all_or_nothing(model):
        changes = []
        for module, policy in found:
            before = _parts(module)
            policy.apply(module, *policy.parts, **options)
            changes += _changes(before, _parts(module))
        if optimizers is not None:
            present = {id(p): p for p in model.parameters()}
            for old, new in changes:
                _update_optimizers(optimizers, old, new, present)


def _parts(module: nn.Module) -> dict[str, list[tuple[nn.Parameter, bool]]]:
    """The parameters of a module, those of each child apart, and whether they are trained."""
    parts = {name: list(child.parameters()) for name, child in module.named_children()}
    parts[""] = [p for p in module._parameters.values() if p is not None]
    return {name: [(p, p.requires_grad) for p in several] for name, several in parts.items()}


_Change = tuple[list[nn.Parameter], list[nn.Parameter]]


def _changes(
    before: dict[str, list[tuple[nn.Parameter, bool]]],
    after: dict[str, list[tuple[nn.Parameter, bool]]],
) -> list[_Change]:
    """What took the place of what, child by child: a neighbour does not tell where it belongs."""
    changes = []
    for name in {**before, **after}:
        old, new = before.get(name, []), after.get(name, [])
        if [(id(p), flag) for p, flag in old] == [(id(p), flag) for p, flag in new]:
            continue
        # What was frozen before is no business of ours.
        frozen = {id(p) for p, trainable in old if not trainable}
        kept = [p for p, trainable in new if trainable or id(p) in frozen]
        changes.append(([p for p, _ in old], kept))
    return changes


def _update_optimizers(
    optimizers: Optimizer | Sequence[Optimizer],
    old: list[nn.Parameter],
    new: list[nn.Parameter],
    present: dict[int, nn.Parameter],
) -> None:
    here = {id(p) for p in new}
    # What went elsewhere in the model is still there.
    moved = [p for p in old if id(p) not in here and id(p) in present and p.requires_grad]
    kept = [p for p in old if id(p) in here]
    for matrices in (True, False):
        olds = [p for p in old if (p.ndim > 1) == matrices]
        news = [p for p in (*new, *moved) if (p.ndim > 1) == matrices]
        if {id(p) for p in olds} == {id(p) for p in news}:
            continue
        if not olds:
            # A first bias goes where the weights are, for want of another bias.
            olds, news = old, [*news, *kept]
        update_params_in_optimizer(olds, news, optimizers)


@contextmanager
def _all_or_nothing(model: nn.Module) -> Iterator[None]:
    """Put the structure of a model back after an error."""
    kept = []
    for module in model.modules():
        fields = dict(module.__dict__)
        inner = {name: dict(v) for name, v in fields.items() if isinstance(v, dict)}
        kept.append((module, fields, inner))
    flags = [(p, p.requires_grad) for p in model.parameters()]
    try:
        yield
    except BaseException:
        for module, fields, inner in kept:
            module.__dict__.clear()
            module.__dict__.update(fields)
            # The very same dictionaries: handles of hooks refer to them.
            for name, items in inner.items():
                fields[name].clear()
                fields[name].update(items)
        for parameter, flag in flags:
            parameter.requires_grad_(flag)
        raise


def explain_unsupported(model: nn.Module, name: str, method: str) -> str:
    """Say that a method knows nothing in a model, what it knows, and how to teach it.

    Args:
        model: The model.
        name: The method's class.
        method: Its plugin name.

    Returns:
        The message.

    Example:
        >>> explain_unsupported(nn.Linear(1, 1), "Alibi", "alibi")
        'Alibi knows no part of this Linear; it knows ...'
    """
    classes = ", ".join(sorted(path.rpartition(":")[2] for path in policies_of(method)))
    return (
        f"{name} knows no part of this {type(model).__name__}; it knows {classes}. Other classes "
        f"are made known by a SurgeryPolicy, registered or in an entry point of {GROUP}"
    )


def has_adapters(model: nn.Module) -> bool:
    """Tell whether a model has adapters of peft, without importing it.

    Args:
        model: The model.

    Returns:
        True if it has.

    Example:
        >>> has_adapters(nn.Linear(1, 1))
        False
    """
    return any(
        cls.__module__.partition(".")[0] == "peft"
        for module in model.modules()
        for cls in type(module).__mro__[:-1]
    )
