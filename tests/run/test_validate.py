"""What a preflight takes from a config, and from a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from allears.errors import DataError, SettingsError
from allears.files import write_yaml
from allears.manifest.index import Index
from allears.run.validate import recipe_of
from allears.text.tokenizer import Tokenizer, TokenizerSettings

if TYPE_CHECKING:
    from pathlib import Path


def test_of_a_config(dataset: Path) -> None:
    index = Index.open(dataset)
    recipe = recipe_of(index, "digits", ["plan.step_seconds=24", "augment.speed=[0.9]"])
    assert recipe.rows == range(160)
    assert recipe.plan.step_seconds == 24
    assert recipe.tokenizer.path is None
    with pytest.raises(DataError, match="has no split 'dev'"):
        recipe_of(index, "tiny", ["train.split=dev"])
    with pytest.raises(SettingsError, match="there is no setting 'plann'"):
        recipe_of(index, "tiny", ["plann.step_seconds=24"])


def test_of_a_run_with_its_tokenizer(dataset: Path, tmp_path: Path) -> None:
    index = Index.open(dataset)
    write_yaml(tmp_path / "settings.yaml", {"plan": {"step_seconds": 60.0}, "seed": 7})
    with pytest.raises(DataError, match="tokenizer"):
        recipe_of(index, str(tmp_path), [])
    made, _ = Tokenizer.train(["low mid high top"] * 2, TokenizerSettings(kind="words"))
    made.save(tmp_path / "tokenizer")
    recipe = recipe_of(index, str(tmp_path), [])
    assert recipe.tokenizer.path == str(tmp_path / "tokenizer")
    assert (recipe.seed, recipe.plan.step_seconds) == (7, 60)
