"""The moments of a run that algorithms, callbacks and loggers hook into.

The order in which they fire is part of the public contract; it is recorded by the golden event
list of the test suite and shown in the documentation.
"""

from __future__ import annotations

from composer.utils.string_enum import StringEnum

__all__ = ["Event"]


class Event(StringEnum):
    """A named moment of a run.

    Training, from outside in: ``INIT``, ``BEFORE_LOAD`` and ``AFTER_LOAD`` fire once while the
    trainer is built; algorithms get ``AFTER_LOAD`` again where a run goes back to a checkpoint.
    ``FIT_START`` to ``FIT_END`` enclose a call of ``fit``; epochs, batches and
    microbatches nest inside. ``AFTER_TRAIN_BATCH`` fires before the optimizer updates the weights
    (gradients are complete and unscaled: clipping goes here); ``BATCH_END`` fires after the update,
    the counters and the schedule. The ``*_CHECKPOINT`` events fire after any evaluation that is due
    at the same time.

    Example:
        >>> Event("batch_end") is Event.BATCH_END
        True
        >>> Event.BEFORE_FORWARD.is_before_event, Event.BEFORE_FORWARD.canonical_name
        (True, 'forward')
    """

    INIT = "init"
    BEFORE_LOAD = "before_load"
    AFTER_LOAD = "after_load"
    FIT_START = "fit_start"

    ITERATION_START = "iteration_start"
    EPOCH_START = "epoch_start"

    BEFORE_DATALOADER = "before_dataloader"
    AFTER_DATALOADER = "after_dataloader"

    BATCH_START = "batch_start"
    BEFORE_TRAIN_BATCH = "before_train_batch"
    BEFORE_FORWARD = "before_forward"
    AFTER_FORWARD = "after_forward"
    BEFORE_LOSS = "before_loss"
    AFTER_LOSS = "after_loss"
    BEFORE_BACKWARD = "before_backward"
    AFTER_BACKWARD = "after_backward"
    AFTER_TRAIN_BATCH = "after_train_batch"
    BATCH_END = "batch_end"
    BATCH_CHECKPOINT = "batch_checkpoint"

    EPOCH_END = "epoch_end"
    EPOCH_CHECKPOINT = "epoch_checkpoint"
    ITERATION_END = "iteration_end"
    ITERATION_CHECKPOINT = "iteration_checkpoint"
    FIT_END = "fit_end"

    EVAL_BEFORE_ALL = "eval_before_all"
    EVAL_START = "eval_start"
    EVAL_BATCH_START = "eval_batch_start"
    EVAL_BEFORE_FORWARD = "eval_before_forward"
    EVAL_AFTER_FORWARD = "eval_after_forward"
    EVAL_BATCH_END = "eval_batch_end"
    EVAL_END = "eval_end"
    EVAL_AFTER_ALL = "eval_after_all"
    EVAL_STANDALONE_START = "eval_standalone_start"
    EVAL_STANDALONE_END = "eval_standalone_end"

    PREDICT_START = "predict_start"
    PREDICT_BATCH_START = "predict_batch_start"
    PREDICT_BEFORE_FORWARD = "predict_before_forward"
    PREDICT_AFTER_FORWARD = "predict_after_forward"
    PREDICT_BATCH_END = "predict_batch_end"
    PREDICT_END = "predict_end"

    @property
    def is_before_event(self) -> bool:
        """Whether this event opens a pair."""
        return self in _PARTNER_OF_OPENER

    @property
    def is_after_event(self) -> bool:
        """Whether this event closes a pair."""
        return self in _PARTNER_OF_CLOSER

    @property
    def undoes(self) -> Event | None:
        """For ``after_x`` the event ``before_x``, whose algorithms undo here; else ``None``."""
        return _UNDOES.get(self)

    @property
    def canonical_name(self) -> str:
        """The event's name without its before, after, start or end marker."""
        name: str = self.value
        for marker in ("before_", "_before", "after_", "_after", "_start", "_end"):
            name = name.replace(marker, "")
        return name

    @property
    def is_predict(self) -> bool:
        """Whether the event belongs to prediction."""
        return self.value.startswith("predict")

    @property
    def is_eval(self) -> bool:
        """Whether the event belongs to evaluation."""
        return self.value.startswith("eval")


# Opener to closer. ``BATCH_START`` and kin are pairs too: the profiler draws each as one span.
_PARTNER_OF_OPENER: dict[Event, Event] = {
    Event.BEFORE_LOAD: Event.AFTER_LOAD,
    Event.FIT_START: Event.FIT_END,
    Event.ITERATION_START: Event.ITERATION_END,
    Event.EPOCH_START: Event.EPOCH_END,
    Event.BEFORE_DATALOADER: Event.AFTER_DATALOADER,
    Event.BATCH_START: Event.BATCH_END,
    Event.BEFORE_TRAIN_BATCH: Event.AFTER_TRAIN_BATCH,
    Event.BEFORE_FORWARD: Event.AFTER_FORWARD,
    Event.BEFORE_LOSS: Event.AFTER_LOSS,
    Event.BEFORE_BACKWARD: Event.AFTER_BACKWARD,
    Event.EVAL_BEFORE_ALL: Event.EVAL_AFTER_ALL,
    Event.EVAL_START: Event.EVAL_END,
    Event.EVAL_BATCH_START: Event.EVAL_BATCH_END,
    Event.EVAL_BEFORE_FORWARD: Event.EVAL_AFTER_FORWARD,
    Event.EVAL_STANDALONE_START: Event.EVAL_STANDALONE_END,
    Event.PREDICT_START: Event.PREDICT_END,
    Event.PREDICT_BATCH_START: Event.PREDICT_BATCH_END,
    Event.PREDICT_BEFORE_FORWARD: Event.PREDICT_AFTER_FORWARD,
}
_PARTNER_OF_CLOSER: dict[Event, Event] = {b: a for a, b in _PARTNER_OF_OPENER.items()}
# Only these pairs are undone in reverse: the start and end of batches, epochs and the like enclose
# much more than one method's own doing.
_UNDOES: dict[Event, Event] = {
    closer: opener for closer, opener in _PARTNER_OF_CLOSER.items() if "after" in closer.value
}
