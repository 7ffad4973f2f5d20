"""All settings of a training, each group beside the class that it configures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field, field_validator

from allears.errors import SettingsError
from allears.loading.augment import AugmentSettings
from allears.loading.collection import SourceSettings
from allears.loading.loader import LoaderSettings
from allears.loading.plan import PlanSettings
from allears.models.ctc import ModelSettings
from allears.settings import Settings, build, overridden, read
from allears.text.tokenizer import TokenizerSettings
from allears.training.initial import InitialSettings
from allears.training.loop import TrainingSettings
from allears.training.optimizer import OptimizerSettings

if TYPE_CHECKING:
    from collections.abc import Sequence


class RunSettings(Settings):
    """What a run is a function of, with its data.

    Attributes:
        seed: of everything random.
        train: what is trained on.
        validation: sets that are scored on the way; the first one selects. None holds out a part of ``train``.
        test: sets that are scored at the end.
        plan: what a step is.
        augment: how the audio that is trained on is changed.
        loader: how batches are made ahead.
        tokenizer: how text becomes tokens.
        model: what is trained.
        optimizer: how weights move.
        training: how long, and what happens on the way.
        init_from: a run whose weights are started from; none draws them. Just its folder means all of it.
    """

    seed: int = Field(default=0, ge=0, lt=2**63)
    train: tuple[SourceSettings, ...] = Field(default=(), examples=[[{"dataset": "data/mine", "split": "train"}]])
    validation: dict[str, SourceSettings] = {}
    test: dict[str, SourceSettings] = {}
    plan: PlanSettings = PlanSettings()
    augment: AugmentSettings = AugmentSettings()
    loader: LoaderSettings = LoaderSettings()
    tokenizer: TokenizerSettings = TokenizerSettings()
    model: ModelSettings = ModelSettings()
    optimizer: OptimizerSettings = OptimizerSettings()
    training: TrainingSettings = TrainingSettings()
    init_from: InitialSettings | None = None

    @field_validator("init_from", mode="before")
    @classmethod
    def _folder(cls, value: Any) -> Any:
        """``init_from: FOLDER`` means all of it."""
        return {"run": value} if isinstance(value, str) else value

    @field_validator("train", mode="before")
    @classmethod
    def _one_or_many(cls, value: Any) -> Any:
        """``train: {dataset: …}`` means a list of one."""
        return [value] if isinstance(value, dict) else value


def settings_of(place: str, overrides: Sequence[str] = ()) -> tuple[RunSettings, Path | None]:
    """Settings of a config, or of a run (or checkpoint) and then its folder; ``overrides`` are key=value.

    Raises:
        SettingsError: it is neither.
    """
    folder = Path(place) if Path(place).is_dir() else None
    source = place if folder is None else str(folder / "settings.yaml")
    if folder is not None and not Path(source).is_file():
        raise SettingsError(f"{folder} has no settings.yaml; name the folder of a run, or a config.")
    return build(RunSettings, overridden(read(source), list(overrides)), source), folder
