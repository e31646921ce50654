"""Prediction: the model's outputs for every batch, without gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from composer.core.event import Event
from composer.core.precision import autocast_factory
from composer.core.timestamp import Timestamp
from composer.trainer.data import derived_seed, host_streams
from composer.trainer.inference import evaluating, limited, loader_in_use
from composer.trainer.metrics import to_host

if TYPE_CHECKING:
    from composer.core.data_spec import DataSpec
    from composer.core.engine import Engine
    from composer.core.state import State

__all__ = ["predict"]


def predict(
    state: State,
    engine: Engine,
    spec: DataSpec,
    *,
    subset_num_batches: int = -1,
    return_outputs: bool = True,
) -> list[Any]:
    """Run the model's ``forward`` over a loader.

    Args:
        state: The state of the run; its loader in use is put back afterwards.
        engine: Dispatches the events.
        spec: The loader.
        subset_num_batches: At most this many batches; -1 for all.
        return_outputs: Whether to keep the outputs.

    Returns:
        One output per batch, on the host; empty if they are not kept.
    """
    outputs: list[Any] = []
    context = autocast_factory(state.precision, state.device.torch_type)
    run_event = engine.run_event
    streams = host_streams(derived_seed(state.seed, "prediction", int(state.timestamp.batch)))
    in_use = loader_in_use(state, spec.dataloader, "predict", subset_num_batches)
    with streams, in_use, evaluating(state):
        state.predict_timestamp = Timestamp()
        run_event(Event.PREDICT_START)
        limit = None if subset_num_batches == -1 else subset_num_batches
        for batch in limited(spec.dataloader, limit):
            if spec.batch_transforms is not None:
                batch = spec.batch_transforms(batch)
            samples = spec.get_num_samples_in_batch(batch)
            batch = state.device.batch_to_device(batch)
            if spec.microbatch_transforms is not None:
                batch = spec.microbatch_transforms(batch)
            state.batch = batch
            run_event(Event.PREDICT_BATCH_START)
            run_event(Event.PREDICT_BEFORE_FORWARD)
            with context():
                state.outputs = state.model(state.batch)
            run_event(Event.PREDICT_AFTER_FORWARD)
            if return_outputs:
                outputs.append(to_host(state.outputs))
            state.predict_timestamp = state.predict_timestamp.to_next_batch(samples=int(samples))
            run_event(Event.PREDICT_BATCH_END)
        run_event(Event.PREDICT_END)
    return outputs
