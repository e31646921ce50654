"""What the arguments of one call of ``fit`` mean, beside those of the trainer."""

from __future__ import annotations

import logging
import warnings
from typing import TYPE_CHECKING, Any

from composer.core.time import Time
from composer.trainer.options import check_epoch_length, check_ratio, parse_duration
from composer.trainer.schedules import scale_duration

if TYPE_CHECKING:
    from composer.core.state import State
    from composer.trainer.resume import Resumption

__all__ = [
    "check_fit_arguments",
    "check_scaling",
    "set_duration",
    "training_is_over",
    "warn_default_optimizer",
]

log = logging.getLogger(__name__)


def check_scaling(schedulers: Any, ratio: float, step_every_batch: bool | None = None) -> None:
    """Refuse settings of schedulers without schedulers.

    Args:
        schedulers: What the user gave.
        ratio: The scale schedule ratio.
        step_every_batch: Whether schedulers are to step at every batch.

    Raises:
        ValueError: If a setting has nothing to act on, or the ratio is no positive number.

    Example:
        >>> check_scaling(None, 1.0)
    """
    check_ratio(ratio)
    if schedulers is not None:
        return
    if ratio != 1.0:
        raise ValueError("scale_schedule_ratio needs schedulers")
    if step_every_batch is not None:
        raise ValueError("step_schedulers_every_batch needs schedulers")


def check_fit_arguments(
    state: State,
    *,
    train_dataloader: Any,
    train_dataloader_label: str,
    eval_dataloader: Any,
    eval_interval: Any,
    eval_subset_num_batches: int,
) -> None:
    """Refuse arguments that belong to one which was not given, and a run without optimizer.

    Args:
        state: The state of the run.
        train_dataloader: The training data of this call.
        train_dataloader_label: Its label.
        eval_dataloader: The evaluation data of this call.
        eval_interval: When to evaluate it.
        eval_subset_num_batches: At most this many batches of it.

    Raises:
        ValueError: If there is nothing to train, or nothing that an argument acts on.

    Example:
        >>> import torch
        >>> from composer.core.state import State
        >>> from composer.devices import DeviceCPU
        >>> state = State(torch.nn.Identity(), 0, "r", DeviceCPU())
        >>> try:
        ...     check_fit_arguments(
        ...         state, train_dataloader=None, train_dataloader_label="train",
        ...         eval_dataloader=None, eval_interval=1, eval_subset_num_batches=-1,
        ...     )
        ... except ValueError as error:
        ...     print("nothing to train" in str(error))
        True
    """
    if not state.optimizers:
        raise ValueError(
            "the model has no parameters and the trainer no optimizer, so there is nothing to "
            "train; it can evaluate and predict"
        )
    if eval_dataloader is None and (eval_interval != 1 or eval_subset_num_batches != -1):
        raise ValueError(
            "eval_interval and eval_subset_num_batches of fit belong to its eval_dataloader; "
            "pass that too, or give them to the trainer"
        )
    if train_dataloader is None and train_dataloader_label != "train":
        raise ValueError(
            f"train_dataloader_label={train_dataloader_label!r} names the train_dataloader "
            f"given with it; pass that too, or give the label to the trainer"
        )


def warn_default_optimizer() -> None:
    """Say which optimizer trains where none was given."""
    warnings.warn(
        "no optimizer was given; training uses DecoupledSGDW with lr=0.1. Pass `optimizers` to "
        "the trainer",
        stacklevel=3,
    )


def set_duration(
    state: State, duration: int | str | Time[int] | None, ratio: float, *, autoresume: bool
) -> None:
    """Let the run last as long as a call of ``fit`` says.

    Args:
        state: The state of the run.
        duration: How much more to train than now; ``None`` for the trainer's maximum duration.
        ratio: The scale schedule ratio.
        autoresume: Whether the run continues itself.

    Raises:
        ValueError: If the duration is not known, not understood, or would grow at each restart.

    Example:
        >>> import torch
        >>> from composer.core.state import State
        >>> from composer.devices import DeviceCPU
        >>> state = State(torch.nn.Linear(1, 1), 0, "r", DeviceCPU())
        >>> set_duration(state, "4ba", 0.5, autoresume=False)
        >>> state.max_duration
        Time(2, TimeUnit.BATCH)
    """
    more = parse_duration(duration, "duration")
    if more is not None:
        if autoresume:
            raise ValueError(
                f"fit(duration={duration!r}) trains that much more than now, so with "
                f"autoresume=True each restart would train longer; pass the whole length as "
                f"Trainer(max_duration=...)"
            )
        state.max_duration = state.timestamp.get(more.unit) + scale_duration(more, ratio)
    elif ratio != 1.0 and state.max_duration is not None:
        state.max_duration = scale_duration(state.max_duration, ratio)
    if state.max_duration is None:
        raise ValueError(
            "how long to train is not known; pass max_duration to the trainer or duration to fit"
        )
    check_epoch_length(state, state.max_duration)


def training_is_over(state: State, resumption: Resumption | None) -> bool:
    """Say whether the run is finished already.

    Args:
        state: The state of the run; its maximum duration must be set.
        resumption: What was loaded, if the run continues one.

    Returns:
        Whether there is nothing to do. A resumed run that is finished says so.

    Raises:
        ValueError: If the run is finished and was not resumed as that.

    Example:
        >>> import torch
        >>> from composer.core.state import State
        >>> from composer.devices import DeviceCPU
        >>> state = State(torch.nn.Linear(1, 1), 0, "r", DeviceCPU(), max_duration="2ba")
        >>> training_is_over(state, None)
        False
    """
    total = state.max_duration
    assert total is not None
    if state.timestamp.count(total.unit) < total.value or state.pending_evaluations:
        return False
    inside, length = int(state.timestamp.batch_in_epoch), state.dataloader_len
    if resumption is not None and length is not None and 0 < inside == length.value:
        return False  # the end of the epoch is still to come
    if resumption is not None:
        log.warning(
            "run %s is finished: %s stands at %s of max_duration=%s, so there is nothing to train",
            state.run_name,
            resumption.path,
            state.timestamp.get(total.unit),
            total,
        )
        return True
    raise ValueError(
        f"no training would happen: the run stands at {state.timestamp.get(total.unit)!s} of "
        f"max_duration={total!s}. Pass fit(duration=...) to train on, or fit(reset_time=True) "
        f"to start the clock over"
    )
