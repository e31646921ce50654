"""Run a recipe: build what it names, train, evaluate, and say what came of it.

Everything a run writes lies in one folder of its own (see ``composer.recipes.folders``), so that no
run touches the files of another. A run that was cut is continued there.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from composer.core.callback import Callback
from composer.recipes.config import Component, Data, Recipe, RecipeError, Target
from composer.recipes.folders import find_run_folder, new_run_folder
from composer.recipes.kept import KEPT_NAME, keep_recipe, kept_recipe
from composer.recipes.resolve import REFUSALS, RecipeParts, resolve_recipe
from composer.utils.suggestions import did_you_mean

if TYPE_CHECKING:
    from composer.core.logger import Logger
    from composer.core.state import State
    from composer.trainer.trainer import Trainer

__all__ = [
    "Outcome",
    "Progress",
    "build_trainer",
    "fit_recipe",
    "in_folder",
    "recipe_to_continue",
    "require_duration",
    "run_recipe",
    "without_outputs",
]

_EVAL_LABEL = "eval"


@dataclass(frozen=True)
class Outcome:
    """What came of a run.

    Args:
        recipe: The recipe's name.
        seed: The seed that was used.
        metrics: The evaluation metrics of the final weights.
        target: What was to be reached, if anything.
        epochs: Finished epochs.
        batches: Batches trained on.
        samples: Samples trained on.
        train_seconds: Seconds of training, without evaluation.
        wall_seconds: Seconds from the start of training to the end of the last evaluation.
        folder: Where the run wrote.
        checkpoints: The checkpoints that were written, oldest first.
        earlier_seconds: Those of ``train_seconds`` that earlier processes of the run took.
        was_finished: Whether a run that was to be continued had come to its end before, so that
            nothing was trained; ``metrics`` is empty unless the trainer evaluated.

    Example:
        >>> outcome = Outcome("r", 1, {"MulticlassAccuracy": 0.91},
        ...     Target("MulticlassAccuracy", 0.9), 2, 20, 200, 4.0, 5.0, Path("runs/r"), ())
        >>> outcome.reached
        True
        >>> print(outcome.table())
        result of r (seed 1)
          MulticlassAccuracy  0.9100 (target 0.9: reached)
          trained             2 epochs, 20 batches, 200 samples
          training            4.0 s, 50 samples/s
          wall time           5.0 s with evaluation and saving
          folder              runs/r
          checkpoints         none
    """

    recipe: str
    seed: int
    metrics: Mapping[str, float]
    target: Target | None
    epochs: int
    batches: int
    samples: int
    train_seconds: float
    wall_seconds: float
    folder: Path
    checkpoints: tuple[str, ...]
    earlier_seconds: float = 0.0
    was_finished: bool = False

    @property
    def reached(self) -> bool:
        """Whether the target was reached; true if there was none, or nothing was measured."""
        if self.target is None or (self.was_finished and not self.metrics):
            return True
        value, target = self.metrics[self.target.metric], self.target.value
        # A metric in single precision lies a hair beside the decimal number that was asked for.
        if math.isclose(value, target, rel_tol=1e-6):
            return True
        return value < target if _direction(self.target) == "less" else value > target

    def table(self) -> str:
        """Return the outcome as a table for people.

        Returns:
            Lines of text.

        Example:
            >>> outcome = Outcome("r", 1, {}, None, 2, 20, 200, 4.0, 5.0, Path("runs/r"), ())
            >>> outcome.table().splitlines()[1]
            '  trained      2 epochs, 20 batches, 200 samples'
        """
        rows = []
        for name, value in self.metrics.items():
            text = f"{value:.4f}"
            if self.target is not None and name == self.target.metric:
                verdict = "reached" if self.reached else "MISSED"
                text += f" (target {self.target.value:g}: {verdict})"
            rows.append((name, text))
        rate = self.samples / self.train_seconds if self.train_seconds else 0.0
        training = f"{self.train_seconds:.1f} s, {rate:,.0f} samples/s"
        wall = f"{self.wall_seconds:.1f} s with evaluation and saving"
        if self.earlier_seconds:
            here = self.train_seconds - self.earlier_seconds
            training += f" ({here:.1f} s in this process)"
            wall += ", of this process"
        rows += [
            (
                "trained",
                f"{self.epochs} epochs, {self.batches:,} batches, {self.samples:,} samples",
            ),
            ("training", training),
            ("wall time", wall),
            ("folder", str(self.folder)),
        ]
        if self.checkpoints:
            # A checkpoint may lie at a URI, which is no path of this machine.
            where, _, last = self.checkpoints[-1].rpartition("/")
            count = len(self.checkpoints)
            rows.append(("checkpoints", f"{where or '.'} ({count}, the last is {last})"))
        else:
            rows.append(("checkpoints", "none"))
        logs = self._logs()
        if logs:
            rows.append(("logs", ", ".join(logs)))
        width = max(len(name) for name, _ in rows)
        lines = [f"result of {self.recipe} (seed {self.seed})"]
        return "\n".join([*lines, *(f"  {name:<{width}}  {text}" for name, text in rows)])

    def _logs(self) -> list[str]:
        folders = {checkpoint.rpartition("/")[0] for checkpoint in self.checkpoints}
        written = {Path(folder).resolve() for folder in folders if "://" not in folder}
        files = sorted(self.folder.rglob("*")) if self.folder.is_dir() else []
        kept = self.folder / KEPT_NAME
        return [
            str(f) for f in files if f.is_file() and f != kept and f.parent.resolve() not in written
        ]


class Progress(Callback):
    """Remembers whether training began, and when the evaluators ran last.

    What is raised before the first batch is asked for says that the recipe cannot be used; and the
    end of a run need not repeat an evaluation.

    Attributes:
        began: Whether a batch was asked for.
        batch: When the evaluators ran last, -1 for never.

    Example:
        >>> Progress().began
        False
    """

    began: bool = False
    batch: int = -1

    def before_dataloader(self, state: State, logger: Logger) -> None:
        del state, logger
        self.began = True

    def eval_after_all(self, state: State, logger: Logger) -> None:
        del logger
        self.batch = state.timestamp.batch.value


def _direction(target: Target) -> str:
    from composer.callbacks.stopping import named_direction

    return target.better or named_direction(target.metric) or "greater"


def _at_least(better: str, value: Any, threshold: Any) -> Any:
    return value <= threshold if better == "less" else value >= threshold


def _run_folder(base: Path, recipe: Recipe, resume: bool | str | Path) -> Path:
    from composer.utils import dist

    chosen: list[Path | RecipeError]
    try:
        if resume is not False:
            given = None if resume is True else resume
            chosen = [find_run_folder(base, recipe.name, folder=given)]
        elif recipe.trainer.get("autoresume"):
            chosen = [base / recipe.name]
        else:
            chosen = [new_run_folder(base, recipe.name)]
    except RecipeError as error:
        chosen = [error]
    # Rank zero's word counts, before anybody writes there; others may see another disk.
    dist.broadcast_object_list(chosen)
    if isinstance(chosen[0], RecipeError):
        raise chosen[0]
    return chosen[0]


def in_folder(recipe: Recipe, folder: Path) -> Recipe:
    """Put the folder of the run where the recipe says ``{folder}``.

    Args:
        recipe: The recipe.
        folder: The folder.

    Returns:
        The recipe with the folder filled in.

    Example:
        >>> from composer.recipes.config import parse_recipe
        >>> text = "{model: m, train_data: {dataset: x}, trainer: {load_path: '{folder}/a.pt'}}"
        >>> in_folder(parse_recipe(text, name="r"), Path("runs")).trainer["load_path"]
        'runs/a.pt'
    """

    def filled(value: Any) -> Any:
        if isinstance(value, str):
            return value.replace("{folder}", str(folder))
        if isinstance(value, Component):
            return replace(value, arguments=filled(value.arguments))
        if isinstance(value, Data):
            return replace(value, dataset=filled(value.dataset))
        if isinstance(value, Mapping):
            return {key: filled(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(filled(item) for item in value)
        return value

    sections = ("model", "train_data", "eval_data", "optimizer", "scheduler", "algorithms")
    return replace(
        recipe,
        **{
            section: filled(getattr(recipe, section))
            for section in (*sections, "callbacks", "loggers", "trainer")
        },
    )


def _loader(data: Data, make: Callable[[], Any], *, training: bool) -> Any:
    from torch.utils.data import DataLoader, Dataset, IterableDataset

    from composer.utils import dist

    dataset = make()
    if not isinstance(dataset, Dataset):
        if data.batch_size is not None or data.shuffle is not None or data.drop_last is not None:
            raise RecipeError(
                f"{data.where}: {data.dataset.name!r} gives a {type(dataset).__name__}, which "
                "makes its own batches: batch_size, shuffle and drop_last have no place here"
            )
        return dataset
    if data.batch_size is None:
        raise RecipeError(f"{data.where}: {data.dataset.name!r} needs batch_size, such as 128")
    ranks = dist.get_world_size()
    if training and data.batch_size % ranks:
        raise RecipeError(
            f"{data.where}: batch_size {data.batch_size} is that of an update, over all ranks, and "
            f"does not divide by their number, {ranks}"
        )
    batch_size = max(1, data.batch_size // ranks)
    drop_last = training if data.drop_last is None else data.drop_last
    sampler = None
    if not isinstance(dataset, IterableDataset):
        shuffle = training if data.shuffle is None else data.shuffle
        sampler = dist.get_sampler(dataset, shuffle=shuffle, drop_last=drop_last)
        if training and drop_last and len(sampler) < batch_size:
            raise RecipeError(
                f"{data.where}: batch_size {data.batch_size} is more than the "
                f"{len(sampler) * ranks} samples there are, so there is no whole batch"
            )
    return DataLoader(
        dataset,
        batch_size=batch_size,
        sampler=sampler,
        drop_last=drop_last,
        num_workers=data.num_workers,
        # A data set that makes samples together may know how to keep them together.
        collate_fn=getattr(dataset, "collate", None),
    )


def build_trainer(
    recipe: Recipe, parts: RecipeParts, folder: Path, seed: int | None, extra: Callback
) -> Trainer:
    """Build all that a recipe names, and the trainer over it.

    Args:
        recipe: The recipe.
        parts: Its parts; see :func:`composer.recipes.resolve.resolve_recipe`.
        folder: The folder of the run.
        seed: The seed; ``None`` for a run that continues with that of its checkpoint.
        extra: A further callback.

    Returns:
        The trainer.

    Raises:
        RecipeError: If something refuses its arguments.

    Example:
        >>> from composer.recipes.resolve import find_recipe
        >>> recipe = find_recipe("fashion_mnist_resnet8", overrides=["loggers=null"])
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     where = Path(folder, "r")
        ...     trainer = build_trainer(recipe, resolve_recipe(recipe), where, 1, Callback())
        ...     trainer.close()
        >>> trainer.state.run_name
        'r'
    """
    from torch.utils.data.distributed import DistributedSampler

    from composer.callbacks.threshold_stopper import ThresholdStopper
    from composer.trainer.trainer import Trainer
    from composer.utils.reproducibility import seed_all

    # The model's first weights are drawn before the trainer, which seeds again, exists.
    if seed is not None:
        seed_all(seed)
    model = parts.model()
    callbacks = [*(make() for make in parts.callbacks), extra]
    target = recipe.target
    if target is not None and target.stop:
        stopper = ThresholdStopper(
            target.metric, _EVAL_LABEL, target.value, comp=partial(_at_least, _direction(target))
        )
        stopper.remedy = "change target.value in the recipe, or set target.stop=false"
        callbacks.append(stopper)
    arguments: dict[str, Any] = {
        "model": model,
        "train_dataloader": _loader(recipe.train_data, parts.train_dataset, training=True),
        "algorithms": [make() for make in parts.algorithms],
        "callbacks": callbacks,
        "loggers": [make() for make in parts.loggers],
        "run_name": folder.name,
        "save_folder": str(folder / "checkpoints"),
        "seed": seed,
    }
    if recipe.eval_data is not None and parts.eval_dataset is not None:
        arguments["eval_dataloader"] = _loader(recipe.eval_data, parts.eval_dataset, training=False)
    if parts.optimizer is not None:
        arguments["optimizers"] = parts.optimizer(model.parameters())
    if parts.schedulers:
        arguments["schedulers"] = [make() for make in parts.schedulers]
    try:
        trainer = Trainer(**{**arguments, **recipe.trainer})
    except REFUSALS as error:
        raise RecipeError(f"{recipe.where}: {error}") from error
    for loader in (arguments["train_dataloader"], arguments.get("eval_dataloader")):
        sampler = getattr(loader, "sampler", None)
        if isinstance(sampler, DistributedSampler):
            # A run that continues has the seed of its checkpoint, and so has the order of its data.
            sampler.seed = trainer.state.rank_zero_seed
    return trainer


def require_duration(recipe: Recipe) -> None:
    """Refuse a recipe that does not say how long to train.

    Args:
        recipe: The recipe.

    Raises:
        RecipeError: If it does not.

    Example:
        >>> from composer.recipes.config import parse_recipe
        >>> text = "{model: m, train_data: {dataset: x}, trainer: {max_duration: 1ep}}"
        >>> require_duration(parse_recipe(text, name="r"))
    """
    if recipe.trainer.get("max_duration") is None:
        raise RecipeError(
            f"{recipe.where}: the section trainer needs max_duration, such as max_duration: 10ep"
        )


def without_outputs(recipe: Recipe, **trainer: Any) -> Recipe:
    """Return a recipe without what loads, saves, logs or draws.

    Args:
        recipe: The recipe.
        **trainer: Further settings of the trainer.

    Returns:
        The recipe.

    Example:
        >>> from composer.recipes.config import parse_recipe
        >>> text = "{model: m, train_data: {dataset: x}, trainer: {save_interval: 1ba}}"
        >>> without_outputs(parse_recipe(text, name="r"), eval_interval=0).trainer["eval_interval"]
        0
    """
    kept = {
        key: value
        for key, value in recipe.trainer.items()
        if not key.startswith(("save_", "load_")) and key != "autoresume"
    }
    quiet = {"save_folder": None, "progress_bar": False, "log_to_console": False}
    return replace(recipe, trainer={**kept, **quiet, **trainer}, loggers=())


def fit_recipe(trainer: Trainer, recipe: Recipe, progress: Progress) -> None:
    """Train, taking what is refused before the first batch for a word about the recipe.

    Args:
        trainer: The trainer.
        recipe: The recipe that it was built from.
        progress: One of its callbacks.

    Raises:
        RecipeError: If the recipe cannot be used.

    Example:
        >>> from types import SimpleNamespace
        >>> from composer.recipes.config import parse_recipe
        >>> recipe = parse_recipe("{model: m, train_data: {dataset: x}, trainer: {}}", name="r")
        >>> fit_recipe(SimpleNamespace(fit=lambda: print("trained")), recipe, Progress())
        trained
    """
    try:
        trainer.fit()
    except REFUSALS as error:
        if progress.began:
            raise
        raise RecipeError(f"{recipe.where}: {error}") from error


def _metrics(trainer: Trainer) -> dict[str, float]:
    return {
        name: float(metric.compute())
        for name, metric in trainer.state.eval_metrics.get(_EVAL_LABEL, {}).items()
    }


def _to_continue(recipe: Recipe) -> Recipe:
    # What it starts from is its own newest checkpoint and nothing else.
    return replace(recipe, trainer={**recipe.trainer, "autoresume": True, "load_path": None})


def _join_ranks(recipe: Recipe) -> None:
    from composer.utils import dist

    if dist.get_world_size() > 1:
        dist.initialize_dist(recipe.trainer.get("device"), recipe.trainer.get("dist_timeout", 300))


def recipe_to_continue(
    recipe: Recipe,
    *,
    folder: str | Path = "runs",
    resume: bool | str | Path = True,
) -> tuple[Path, Recipe | None]:
    """Find a run that is to be continued, and the recipe that it was started with.

    Args:
        recipe: The recipe by whose name the run is found.
        folder: Where the folders of runs lie.
        resume: True for the newest run of the recipe, or the folder of a run.

    Returns:
        The folder of the run, and its own recipe; ``None`` in place of the recipe if the folder
        keeps none.

    Raises:
        RecipeError: If there is no such run, or its recipe cannot be read.

    Example:
        >>> from composer.recipes.config import parse_recipe
        >>> recipe = parse_recipe("{model: m, train_data: {dataset: x}, trainer: {}}", name="r")
        >>> recipe_to_continue(recipe, folder="/nowhere")
        Traceback (most recent call last):
        composer.recipes.config.RecipeError: the folder /nowhere holds no run of 'r'...
    """
    _join_ranks(recipe)
    run_folder = _run_folder(Path(folder), recipe, resume)
    return run_folder, kept_recipe(run_folder, name=recipe.name)


def run_recipe(
    recipe: Recipe,
    *,
    folder: str | Path = "runs",
    seed: int | None = None,
    resume: bool | str | Path = False,
    begun: Callable[[Path], None] | None = None,
) -> Outcome:
    """Train by a recipe.

    The recipe is kept in the folder of the run, for :func:`recipe_to_continue`.

    Args:
        recipe: The recipe; a run that continues goes on by this one.
        folder: The folder in which the run gets a folder of its own.
        seed: The seed, instead of the recipe's; drawn at random if neither gives one.
        resume: True to continue the newest run of the recipe under ``folder``; the folder of a run
            to continue that one.
        begun: Is told the folder of the run once it is known.

    Returns:
        What came of it; of a run that was to be continued and is finished, that it was.

    Raises:
        RecipeError: If the recipe names something unknown, something refuses its arguments, or
            there is nothing to continue.

    Example:
        >>> from composer.recipes.config import parse_recipe
        >>> recipe = parse_recipe(
        ...     "{model: no_such_model, train_data: {dataset: x}, trainer: {}}", name="r"
        ... )
        >>> run_recipe(recipe)
        Traceback (most recent call last):
        composer.recipes.config.RecipeError: r, line 1: no model named 'no_such_model'...
    """
    from composer.utils import dist
    from composer.utils.reproducibility import get_random_seed

    _join_ranks(recipe)
    continues = resume is not False
    run_folder = _run_folder(Path(folder), recipe, resume)
    kept = recipe if seed is None else replace(recipe, seed=seed)
    recipe = in_folder(_to_continue(recipe) if continues else recipe, run_folder)
    parts = resolve_recipe(recipe)
    require_duration(recipe)
    seed = recipe.seed if seed is None else seed
    if seed is None and not continues:  # a run that continues has one
        seeds = [get_random_seed()]
        dist.broadcast_object_list(seeds)
        seed = seeds[0]
    if begun is not None:
        begun(run_folder)
    progress = Progress()
    trainer = build_trainer(recipe, parts, run_folder, seed, progress)
    try:
        if continues and trainer.state.load_path is None:
            where = recipe.trainer.get("save_folder") or run_folder / "checkpoints"
            raise RecipeError(
                f"{recipe.where}: the run in {run_folder} cannot be continued: there is no "
                f"checkpoint of it in {where}"
            )
        target = recipe.target
        known = trainer.state.eval_metrics.get(_EVAL_LABEL, {})
        if target is not None and known and target.metric not in known:
            raise RecipeError(
                f"{recipe.where}: the target's metric {target.metric!r} is not among those of the "
                f"model: {', '.join(known)}.{did_you_mean(target.metric, known)}"
            )
        # Only now, when nothing is refused any longer: a slip leaves the run as it was.
        if dist.get_global_rank() == 0:
            keep_recipe(kept, run_folder)
        before, pending = trainer.state.timestamp, trainer.state.pending_evaluations
        started = time.perf_counter()
        fit_recipe(trainer, recipe, progress)
        timestamp = trainer.state.timestamp
        # The clock itself may have moved by what it takes to find out that nothing is to be done.
        counts = [(int(moment.epoch), int(moment.batch)) for moment in (before, timestamp)]
        was_finished = continues and not pending and counts[0] == counts[1]
        evaluated = was_finished or progress.batch == timestamp.batch.value
        if recipe.eval_data is not None and not evaluated:
            trainer.eval()
        wall_seconds = time.perf_counter() - started
        return Outcome(
            recipe=recipe.name,
            seed=trainer.state.rank_zero_seed,
            metrics={} if progress.batch == -1 and was_finished else _metrics(trainer),
            target=target,
            epochs=timestamp.epoch.value,
            batches=timestamp.batch.value,
            samples=timestamp.sample.value,
            train_seconds=timestamp.total_wct.total_seconds(),
            wall_seconds=wall_seconds,
            folder=run_folder,
            checkpoints=tuple(trainer.saved_checkpoints),
            earlier_seconds=before.total_wct.total_seconds(),
            was_finished=was_finished,
        )
    finally:
        trainer.close()
