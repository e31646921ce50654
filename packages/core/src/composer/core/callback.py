"""The contract of an observer: one method per event, all of them empty.

The engine calls only the methods that a subclass overrides, so a callback costs nothing at the
events it does not care about.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from composer.core.serializable import Serializable

if TYPE_CHECKING:
    from composer.core.event import Event
    from composer.core.logger import Logger
    from composer.core.state import State

__all__ = ["Callback"]


class Callback(Serializable):
    """Something that watches a run, and may keep a state in its checkpoints.

    Override the method named like the event, or :meth:`run_event` to be called at every event.

    Example:
        >>> class Say(Callback):
        ...     def epoch_end(self, state, logger):
        ...         print("epoch over")
        >>> Say().epoch_end(None, None)
        epoch over
    """

    def run_event(self, event: Event, state: State, logger: Logger) -> None:
        """Call the method named like the event; override to catch every event.

        Args:
            event: The event that fires.
            state: The state of the run.
            logger: Where to report.
        """
        getattr(self, event.value)(state, logger)

    def init(self, state: State, logger: Logger) -> None:
        """Called right after the trainer was assembled, before data is attached.

        Args:
            state: The state of the run.
            logger: Where to report.
        """

    def before_load(self, state: State, logger: Logger) -> None:
        """Called before a checkpoint is read.

        Args:
            state: The state of the run.
            logger: Where to report.
        """

    def after_load(self, state: State, logger: Logger) -> None:
        """Called after a checkpoint was read.

        Args:
            state: The state of the run.
            logger: Where to report.
        """

    def fit_start(self, state: State, logger: Logger) -> None:
        """Called when ``fit`` starts.

        Args:
            state: The state of the run.
            logger: Where to report.
        """

    def iteration_start(self, state: State, logger: Logger) -> None:
        """Called when an iteration starts.

        Args:
            state: The state of the run.
            logger: Where to report.
        """

    def epoch_start(self, state: State, logger: Logger) -> None:
        """Called when an epoch starts.

        Args:
            state: The state of the run.
            logger: Where to report.
        """

    def before_dataloader(self, state: State, logger: Logger) -> None:
        """Called before the next batch is drawn.

        Args:
            state: The state of the run.
            logger: Where to report.
        """

    def after_dataloader(self, state: State, logger: Logger) -> None:
        """Called after a batch was drawn, still on the host.

        Args:
            state: The state of the run.
            logger: Where to report.
        """

    def batch_start(self, state: State, logger: Logger) -> None:
        """Called when a batch starts.

        Args:
            state: The state of the run.
            logger: Where to report.
        """

    def before_train_batch(self, state: State, logger: Logger) -> None:
        """Called before the first forward pass of a batch.

        Args:
            state: The state of the run.
            logger: Where to report.
        """

    def before_forward(self, state: State, logger: Logger) -> None:
        """Called before each forward pass.

        Args:
            state: The state of the run.
            logger: Where to report.
        """

    def after_forward(self, state: State, logger: Logger) -> None:
        """Called after each forward pass.

        Args:
            state: The state of the run.
            logger: Where to report.
        """

    def before_loss(self, state: State, logger: Logger) -> None:
        """Called before each loss.

        Args:
            state: The state of the run.
            logger: Where to report.
        """

    def after_loss(self, state: State, logger: Logger) -> None:
        """Called after each loss.

        Args:
            state: The state of the run.
            logger: Where to report.
        """

    def before_backward(self, state: State, logger: Logger) -> None:
        """Called before each backward pass.

        Args:
            state: The state of the run.
            logger: Where to report.
        """

    def after_backward(self, state: State, logger: Logger) -> None:
        """Called after each backward pass.

        Args:
            state: The state of the run.
            logger: Where to report.
        """

    def after_train_batch(self, state: State, logger: Logger) -> None:
        """Called when all gradients of a batch are there, before the optimizer's update.

        Args:
            state: The state of the run.
            logger: Where to report.
        """

    def batch_end(self, state: State, logger: Logger) -> None:
        """Called after the update, the counters and the schedule.

        Args:
            state: The state of the run.
            logger: Where to report.
        """

    def batch_checkpoint(self, state: State, logger: Logger) -> None:
        """Called after the evaluations due at a batch's end: the moment to save.

        Args:
            state: The state of the run.
            logger: Where to report.
        """

    def epoch_end(self, state: State, logger: Logger) -> None:
        """Called when an epoch has ended.

        Args:
            state: The state of the run.
            logger: Where to report.
        """

    def epoch_checkpoint(self, state: State, logger: Logger) -> None:
        """Called after the evaluations due at an epoch's end: the moment to save.

        Args:
            state: The state of the run.
            logger: Where to report.
        """

    def iteration_end(self, state: State, logger: Logger) -> None:
        """Called when an iteration has ended.

        Args:
            state: The state of the run.
            logger: Where to report.
        """

    def iteration_checkpoint(self, state: State, logger: Logger) -> None:
        """Called after the evaluations due at an iteration's end.

        Args:
            state: The state of the run.
            logger: Where to report.
        """

    def predict_start(self, state: State, logger: Logger) -> None:
        """Called when ``predict`` starts.

        Args:
            state: The state of the run.
            logger: Where to report.
        """

    def predict_batch_start(self, state: State, logger: Logger) -> None:
        """Called when a prediction batch starts.

        Args:
            state: The state of the run.
            logger: Where to report.
        """

    def predict_before_forward(self, state: State, logger: Logger) -> None:
        """Called before the forward pass of a prediction batch.

        Args:
            state: The state of the run.
            logger: Where to report.
        """

    def predict_after_forward(self, state: State, logger: Logger) -> None:
        """Called after the forward pass of a prediction batch.

        Args:
            state: The state of the run.
            logger: Where to report.
        """

    def predict_batch_end(self, state: State, logger: Logger) -> None:
        """Called when a prediction batch has ended.

        Args:
            state: The state of the run.
            logger: Where to report.
        """

    def predict_end(self, state: State, logger: Logger) -> None:
        """Called when ``predict`` has ended.

        Args:
            state: The state of the run.
            logger: Where to report.
        """

    def eval_before_all(self, state: State, logger: Logger) -> None:
        """Called before the first evaluator of an evaluation during training.

        Args:
            state: The state of the run.
            logger: Where to report.
        """

    def eval_start(self, state: State, logger: Logger) -> None:
        """Called when an evaluator starts.

        Args:
            state: The state of the run.
            logger: Where to report.
        """

    def eval_batch_start(self, state: State, logger: Logger) -> None:
        """Called when an evaluation batch starts.

        Args:
            state: The state of the run.
            logger: Where to report.
        """

    def eval_before_forward(self, state: State, logger: Logger) -> None:
        """Called before each evaluation forward pass.

        Args:
            state: The state of the run.
            logger: Where to report.
        """

    def eval_after_forward(self, state: State, logger: Logger) -> None:
        """Called after each evaluation forward pass.

        Args:
            state: The state of the run.
            logger: Where to report.
        """

    def eval_batch_end(self, state: State, logger: Logger) -> None:
        """Called when an evaluation batch has ended.

        Args:
            state: The state of the run.
            logger: Where to report.
        """

    def eval_end(self, state: State, logger: Logger) -> None:
        """Called when an evaluator has ended and its metrics are computed.

        Args:
            state: The state of the run.
            logger: Where to report.
        """

    def eval_after_all(self, state: State, logger: Logger) -> None:
        """Called after the last evaluator of an evaluation during training.

        Args:
            state: The state of the run.
            logger: Where to report.
        """

    def eval_standalone_start(self, state: State, logger: Logger) -> None:
        """Called when ``Trainer.eval`` starts.

        Args:
            state: The state of the run.
            logger: Where to report.
        """

    def eval_standalone_end(self, state: State, logger: Logger) -> None:
        """Called when ``Trainer.eval`` has ended.

        Args:
            state: The state of the run.
            logger: Where to report.
        """

    def fit_end(self, state: State, logger: Logger) -> None:
        """Called when ``fit`` ends.

        Args:
            state: The state of the run.
            logger: Where to report.
        """

    def close(self, state: State, logger: Logger) -> None:
        """Called once when the trainer closes, also after an error; may still log.

        Args:
            state: The state of the run.
            logger: Where to report.
        """

    def post_close(self) -> None:
        """Called after every callback was closed; nothing can be logged any more."""
