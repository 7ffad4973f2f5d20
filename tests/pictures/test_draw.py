"""Pictures are looked at by people; here, that they show what they are given, whatever it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image

from allears.pictures.batch import MicroBatch, PlannedStep
from allears.pictures.canvas import BLUE, PALE, file_name, sheet, shortened
from allears.pictures.curves import PARTS, Curves
from allears.pictures.draw_batch import draw_batch
from allears.pictures.draw_run import PART_COLOURS, draw_run
from allears.pictures.draw_utterance import draw_utterance
from allears.pictures.utterance import Heard, levels

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

HIDDEN = "#bfbfbf"


def pixels(path: Path) -> NDArray[np.uint8]:
    """[rows, columns, 3]."""
    with Image.open(path) as picture:
        return np.asarray(picture.convert("RGB"))


def dots(path: Path, colour: str) -> int:
    """How many dots of a picture have a colour, such as ``#0072b2``."""
    wanted = [int(colour[n : n + 2], 16) for n in (1, 3, 5)]
    return int((pixels(path) == wanted).all(axis=2).sum())


def heard(samples: int = 16000, hidden: bool = False, text: str = "one two", **changes: Any) -> Heard:
    waveform = np.random.default_rng(0).normal(0, 3000, samples).astype(np.int16)
    frames = max(0, 1 + (samples - 400) // 160)
    features = np.random.default_rng(1).normal(size=(frames, 80)).astype(np.float32)
    fields: dict[str, Any] = {
        "id": "a/b 1", "text": text, "normalised": text, "speaker": "s", "tokens": [(2, "one"), (3, "two")],
        "epoch": 0, "kind": "test", "before": waveform, "after": waveform, "features": features,
        "augmented": features, "hidden": np.full((frames, 80), hidden), "levels": levels(waveform), **changes,
    }  # fmt: skip
    return Heard(**fields)


@pytest.mark.parametrize("samples", [0, 100, 320000])
def test_utterances_of_any_length(tmp_path: Path, samples: int) -> None:
    draw_utterance(heard(samples), tmp_path / "u.png")
    assert pixels(tmp_path / "u.png").shape[1] == 1440
    assert (dots(tmp_path / "u.png", BLUE) > 0) == (samples > 0)


def test_what_is_hidden_is_grey(tmp_path: Path) -> None:
    draw_utterance(heard(), tmp_path / "seen.png")
    draw_utterance(heard(hidden=True), tmp_path / "hidden.png")
    assert dots(tmp_path / "seen.png", HIDDEN) < 200
    assert dots(tmp_path / "hidden.png", HIDDEN) > 200_000


def test_a_changed_waveform_has_a_panel_of_its_own(tmp_path: Path) -> None:
    draw_utterance(heard(), tmp_path / "same.png")
    draw_utterance(heard(after=np.zeros(8000, np.int16)), tmp_path / "changed.png")
    assert len(pixels(tmp_path / "changed.png")) > len(pixels(tmp_path / "same.png"))


def test_letters_without_a_glyph_are_one_note(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    draw_utterance(heard(text="\U00012000\U00012001\U00012000 $x_$ and $y^$ \\frac"), tmp_path / "u.png")  # cuneiform
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert "\U00012000\U00012001," in said[0]


def test_a_picture_is_complete_or_absent(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), sheet(tmp_path / "p.png", 2, 2):
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def step(*lengths: list[float]) -> PlannedStep:
    batches = [MicroBatch(np.array(one), 3, len(one) * max(one, default=0.0)) for one in lengths]
    return PlannedStep(0, 0, 0, 10, batches)


def test_padding_is_as_large_as_it_is(tmp_path: Path) -> None:
    draw_batch(step([1.0, 1.0], [2.0, 2.0]), tmp_path / "full.png")
    draw_batch(step([1.0, 0.5], [2.0, 1.0]), tmp_path / "half.png")
    audio, padding = (dots(tmp_path / "half.png", colour) for colour in (BLUE, PALE))
    assert padding / (audio + padding) == pytest.approx(0.25, abs=0.02)
    assert dots(tmp_path / "full.png", PALE) < 0.01 * dots(tmp_path / "full.png", BLUE)


@pytest.mark.parametrize("lengths", [[[2.0]], [[], [1.0]], [[]], [[1.0] * 50] * 64])
def test_steps_of_any_shape(tmp_path: Path, lengths: list[list[float]]) -> None:
    draw_batch(step(*lengths), tmp_path / "b.png")
    assert (dots(tmp_path / "b.png", BLUE) > 10_000) == any(lengths)


def curves(folder: Path, steps: int, values: NDArray[np.float64] | float = 0.25) -> Curves:
    fields = "epoch loss grad_norm clipped learning_rate utterances audio_seconds tokens padding memory_bytes rejected"
    columns = {name: np.full(steps, 1.0) * values for name in [*fields.split(), *PARTS]}
    columns["seconds"] = np.sum([columns[name] for name in PARTS], axis=0)
    return Curves(folder, {"optimizer": {"clip": 5.0}}, np.arange(steps), columns, {}, {}, 0)


@pytest.mark.parametrize("steps", [[0], [1], [5_000], [0, 1, 50]])
def test_runs_of_any_length(tmp_path: Path, steps: list[int]) -> None:
    draw_run([curves(tmp_path / str(n), n) for n in steps], tmp_path / "r.png")
    # all parts take the same time, so they have the same area
    areas = [dots(tmp_path / "r.png", colour) for colour in PART_COLOURS.values()]
    if max(steps):
        assert min(areas) > 1000
        assert max(areas) < 1.5 * min(areas)


def test_values_that_are_missing_leave_gaps(tmp_path: Path) -> None:
    draw_run([curves(tmp_path, 4, np.array([1.0, np.nan, np.nan, 100.0]))], tmp_path / "r.png")


@pytest.mark.parametrize("text", ["a", "设定_1", "x-2.b"])
def test_plain_names_stay(text: str) -> None:
    assert file_name(text) == text


def test_other_names_stay_different() -> None:
    found = {file_name(text) for text in ("a/b", "a b", "a_b", "..", "", "x" * 300, "x" * 301, "设" * 300)}
    assert len(found) == 8
    assert all("/" not in name and 0 < len(name.encode()) < 140 and name.strip(".") for name in found)


def test_long_texts_are_shortened() -> None:
    assert shortened("a\n b" * 3, 7) == "a ba b…"
