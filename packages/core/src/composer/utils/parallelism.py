"""Settings of sharding and tensor parallelism, as plain values.

They are here, below everything that uses them, because trainers, checkpoints and model wrappers all
read them. A misspelt field is an error and not a setting that nobody reads.
"""

from __future__ import annotations

import dataclasses
import functools
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from composer.utils.string_enum import StringEnum
from composer.utils.suggestions import did_you_mean

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

__all__ = ["FSDP2Config", "FSDPConfig", "ParallelismConfig", "ParallelismType", "TPConfig"]

TConfig = TypeVar("TConfig")


class ParallelismType(StringEnum):
    """The names of the dimensions of a device mesh.

    Example:
        >>> ParallelismType("tensor_parallel").name
        'TENSOR_PARALLEL'
    """

    DATA_PARALLEL_SHARD = "data_parallel_shard"
    DATA_PARALLEL_REPLICATE = "data_parallel_replicate"
    TENSOR_PARALLEL = "tensor_parallel"


def _refuse_unknown_fields(cls: type[TConfig]) -> type[TConfig]:
    """Let the constructor of a dataclass name the nearest field when one is misspelt."""
    generated: Callable[..., None] = cls.__init__
    known = [one.name for one in dataclasses.fields(cls) if one.init]  # type: ignore[arg-type]

    @functools.wraps(generated)
    def checked(self: Any, *args: Any, **kwargs: Any) -> None:
        for name in kwargs:
            if name not in known:
                raise _unknown_field(cls, name, known)
        generated(self, *args, **kwargs)

    cls.__init__ = checked  # type: ignore[method-assign]
    return cls


def _unknown_field(cls: type[Any], name: str, known: list[str]) -> TypeError:
    return TypeError(
        f"{cls.__name__} has no field {name!r}.{did_you_mean(name, known)} "
        f"Accepted are: {', '.join(known)}."
    )


@_refuse_unknown_fields
@dataclass
class FSDPConfig:
    """How to shard a model, with the fields of torch's first kind of sharding.

    Example:
        >>> FSDPConfig(sharding_strategy="SHARD_GRAD_OP").state_dict_type
        'full'
    """

    activation_checkpointing: bool = False
    activation_checkpointing_reentrant: bool = True
    activation_cpu_offload: bool = False
    auto_wrap: bool = True
    te_checkpoint_wrapper: bool = False
    te_shard_fp8_weight: bool = False
    backward_prefetch: str = "BACKWARD_POST"
    backward_prefetch_limit: int = 1
    cpu_offload: bool = False
    data_parallel_shard_degree: int = -1
    data_parallel_replicate_degree: int | None = None
    forward_prefetch: bool = False
    forward_prefetch_limit: int = 1
    ignored_modules: Any | None = None
    keep_low_precision_grads: bool = False
    limit_all_gathers: bool = True
    load_monolith_rank0_only: bool = False
    load_planner: Any | None = None
    mixed_precision: str | dict[str, Any] = "DEFAULT"
    process_group: Any | None = None
    save_planner: Any | None = None
    sharded_ckpt_prefix_dir: str = "ep{epoch}-ba{batch}"
    sharding_strategy: str = "FULL_SHARD"
    state_dict_type: str = "full"
    sync_module_states: bool = False
    use_orig_params: bool = True
    verbose: bool = False
    #: Built from the degrees when the model is wrapped.
    device_mesh: DeviceMesh | None = field(default=None, init=False, repr=False)


@_refuse_unknown_fields
@dataclass
class TPConfig:
    """How to split layers over ranks.

    Example:
        >>> TPConfig(tensor_parallel_degree=2).tensor_parallel_degree
        2
    """

    device_mesh: DeviceMesh | None = None
    tensor_parallel_degree: int = 1
    layer_plan: Any = None


_RESHARD_BY_STRATEGY = {
    "FULL_SHARD": True,
    "HYBRID_SHARD": True,
    "SHARD_GRAD_OP": False,
    "_HYBRID_SHARD_ZERO2": False,
}


@_refuse_unknown_fields
@dataclass
class FSDP2Config:
    """How to shard a model with ``fully_shard``.

    Example:
        >>> FSDP2Config(reshard_after_forward=False).state_dict_type
        'sharded'
    """

    device_mesh: DeviceMesh | None = None
    reshard_after_forward: bool | int = True
    activation_checkpointing: bool = False
    activation_cpu_offload: bool = False
    state_dict_type: str = "sharded"
    load_monolith_rank0_only: bool = False
    mixed_precision: str = "DEFAULT"
    verbose: bool = False
    #: Found out when the model is wrapped.
    sync_module_states: bool = field(default=False, init=False, repr=False)

    @classmethod
    def settable_attrs(cls) -> set[str]:
        """List the fields that the constructor takes.

        Returns:
            The names.

        Example:
            >>> "verbose" in FSDP2Config.settable_attrs()
            True
        """
        return {one.name for one in dataclasses.fields(cls) if one.init}

    @classmethod
    def from_compatible_attrs(cls, attrs: dict[str, Any]) -> FSDP2Config:
        """Build settings from a dictionary that may hold fields of `FSDPConfig`.

        Args:
            attrs: Field to value. ``sharding_strategy`` decides ``reshard_after_forward`` if that
                is not given; other fields that have no counterpart are dropped, with one warning.

        Returns:
            The settings.

        Raises:
            TypeError: If a field belongs to neither.

        Example:
            >>> settings = FSDP2Config.from_compatible_attrs({"sharding_strategy": "SHARD_GRAD_OP"})
            >>> settings.reshard_after_forward
            False
        """
        settable = cls.settable_attrs()
        older = {one.name for one in dataclasses.fields(FSDPConfig)}
        kept: dict[str, Any] = {}
        dropped: list[str] = []
        for name, value in attrs.items():
            if name in settable:
                kept[name] = value
            elif name not in older:
                raise _unknown_field(cls, name, sorted(settable | older))
            elif name == "sharding_strategy" and value in _RESHARD_BY_STRATEGY:
                if "reshard_after_forward" not in attrs:
                    kept["reshard_after_forward"] = _RESHARD_BY_STRATEGY[value]
            else:
                dropped.append(name)
        if dropped:
            warnings.warn(
                f"These fields of FSDPConfig have no counterpart in FSDP2Config and are not used: "
                f"{', '.join(sorted(dropped))}.",
                UserWarning,
                stacklevel=2,
            )
        return cls(**kept)

    @property
    def load_planner(self) -> Any | None:
        """No planner of its own."""
        return None

    @property
    def save_planner(self) -> Any | None:
        """No planner of its own."""
        return None

    @property
    def sharded_ckpt_prefix_dir(self) -> str:
        """The folder of each sharded checkpoint."""
        return "ep{epoch}-ba{batch}"

    @property
    def data_parallel_shard_degree(self) -> int:
        """Over how many ranks parameters are sharded; -1 without a mesh."""
        return -1 if self.device_mesh is None else self.device_mesh.size(self.device_mesh.ndim - 1)

    @property
    def data_parallel_replicate_degree(self) -> int | None:
        """How many copies of the shards there are; ``None`` without a second mesh dimension."""
        if self.device_mesh is None or self.device_mesh.ndim < 2:
            return None
        return self.device_mesh.size(0)

    @property
    def use_orig_params(self) -> bool:
        """Parameters always keep their identity."""
        return True


@_refuse_unknown_fields
@dataclass
class ParallelismConfig:
    """All settings of parallelism together.

    Example:
        >>> ParallelismConfig(tp=TPConfig()).fsdp is None
        True
    """

    fsdp: FSDPConfig | None = None
    tp: TPConfig | None = None
    fsdp2: FSDP2Config | None = None
