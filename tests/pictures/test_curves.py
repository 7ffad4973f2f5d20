from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from allears.errors import DataError
from allears.pictures.curves import PARTS, Best, names, read_curves, smoothed, summary, verdicts

if TYPE_CHECKING:
    from pathlib import Path


def line(step: int, data: float = 0.1, **changes: Any) -> str:
    seconds = {"data": data, "compute": 0.8, "communication": 0.05, "other": 0.05}
    fields = {
        "step": step, "applied": step + 1, "epoch": step // 10, "loss": 5.0 - step / 10, "grad_norm": 1.0 + step,
        "clipped": step % 2 == 0, "learning_rate": 1e-3, "loss_scale": 1.0, "utterances": 3, "audio_seconds": 36.0,
        "tokens": 30, "padding": 0.02, "seconds": seconds, "memory_bytes": 2**30, "rejected": 0, **changes,
    }  # fmt: skip
    return json.dumps(fields)


def validation(step: int, wer: float, name: str = "held_out") -> str:
    return json.dumps({"step": step, "validation": name, "wer": wer, "cer": wer / 2})


def run_of(folder: Path, text: str, settings: str = "") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "metrics.jsonl").write_text(text, encoding="utf-8")
    if settings:
        (folder / "settings.yaml").write_text(settings, encoding="utf-8")
    return folder


def whole(steps: int, **changes: Any) -> str:
    return "".join(line(step, **changes) + "\n" for step in range(steps))


def test_steps_and_validations_are_read(tmp_path: Path) -> None:
    text = whole(25) + validation(9, 0.5) + "\n" + validation(19, 0.25) + "\n" + validation(19, 0.3, "noisy") + "\n"
    curves = read_curves(run_of(tmp_path, text))
    assert curves.steps.tolist() == list(range(25))
    assert curves.columns["loss"][10] == 4.0
    assert curves.columns["clipped"].mean() == pytest.approx(13 / 25)
    np.testing.assert_allclose(curves.columns["seconds"], 1.0)
    steps, rates = curves.validation["held_out"]["wer"]
    assert (steps.tolist(), rates.tolist()) == ([9, 19], [0.5, 0.25])
    assert list(curves.validation) == ["held_out", "noisy"]
    found = summary(curves)
    assert found.best == Best("held_out", "wer", 0.25, 20)
    assert (found.steps, found.epochs) == (25, 3)
    assert found.audio_hours == pytest.approx(0.25)
    assert found.times_real == pytest.approx(36.0)
    assert found.shares == pytest.approx({"data": 0.1, "compute": 0.8, "communication": 0.05, "other": 0.05})


def test_the_first_step_does_not_count_for_where_the_time_went(tmp_path: Path) -> None:
    text = line(0, data=1000.0) + "\n" + "".join(line(step, data=0.0) + "\n" for step in range(1, 30))
    assert summary(read_curves(run_of(tmp_path, text))).shares["data"] == 0.0


def test_the_config_chooses_the_rate_that_selects(tmp_path: Path) -> None:
    text = line(0) + "\n" + validation(0, 0.5) + "\n"
    best = summary(read_curves(run_of(tmp_path, text, "training: {select: cer}"))).best
    assert best == Best("held_out", "cer", 0.25, 1)


def test_a_line_may_name_the_rate_that_selects(tmp_path: Path) -> None:
    text = line(0) + "\n" + json.dumps({"step": 0, "validation": "v", "wer": 1.0, "cer": 0.2, "headline": "cer"}) + "\n"
    assert summary(read_curves(run_of(tmp_path, text))).best == Best("v", "cer", 0.2, 1)


def test_a_line_that_is_being_written_is_no_fault(tmp_path: Path) -> None:
    curves = read_curves(run_of(tmp_path, whole(3) + line(3)[:40]))
    assert (len(curves), curves.unreadable) == (3, 0)
    assert len(read_curves(run_of(tmp_path, whole(3) + line(3)))) == 4  # whole but for its line break


def test_other_broken_lines_are_counted(tmp_path: Path) -> None:
    text = line(0) + '\n{"step": 1, "lo\n[1]\n{"step": true, "loss": 1}\n' + line(2) + "\n"
    curves = read_curves(run_of(tmp_path, text))
    assert curves.steps.tolist() == [0, 2]
    assert curves.unreadable == 3


def test_a_step_that_was_taken_again_counts_once(tmp_path: Path) -> None:
    curves = read_curves(run_of(tmp_path, whole(3) + line(1, loss=9.0) + "\n"))
    assert curves.steps.tolist() == [0, 1, 2]
    assert curves.columns["loss"][1] == 9.0


def test_missing_and_strange_values_are_nan(tmp_path: Path) -> None:
    text = '{"step": 0, "loss": NaN, "seconds": 3}\n' + line(1, loss=None, grad_norm="x") + "\n"
    curves = read_curves(run_of(tmp_path, text))
    assert np.isnan(curves.columns["loss"]).all()
    assert np.isnan(curves.columns["grad_norm"]).all()
    assert np.isnan(curves.columns["seconds"][0])
    assert np.isnan(summary(curves).loss)


def test_metrics_without_any_use_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"metrics\.jsonl: none of its lines is a step or a validation"):
        read_curves(run_of(tmp_path, 'nonsense\n{"a": 1}\n'))
    with pytest.raises(DataError, match=r"metrics\.jsonl: no value of its 2 steps is a finite number"):
        read_curves(run_of(tmp_path, '{"step": 0, "loss": NaN}\n{"step": 1, "loss": "x", "seconds": "y"}\n'))
    (tmp_path / "metrics.jsonl").write_text('{"step": 0, "lo')  # just being written
    assert len(read_curves(tmp_path)) == 0


def test_a_loss_that_is_never_finite_is_said(tmp_path: Path) -> None:
    found = summary(read_curves(run_of(tmp_path, whole(3, loss=float("nan")))))
    assert found.verdicts[0].startswith("no step has a finite loss")
    assert "3 steps: too few" in found.verdicts[1]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("steps", [0, 1])
def test_a_run_that_has_just_begun(tmp_path: Path, steps: int) -> None:
    found = summary(read_curves(run_of(tmp_path, whole(steps))))
    assert found.steps == steps
    assert found.best is None
    assert len(found.verdicts) == 1
    assert ("too few" if steps else "no step") in found.verdicts[0]


def test_a_folder_that_is_no_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"metrics.jsonl cannot be read .*name the folder of a run"):
        read_curves(tmp_path)


def test_smoothing_is_a_mean_of_neighbours() -> None:
    values = np.array([1.0, 2.0, np.nan, 4.0, 8.0])
    np.testing.assert_allclose(smoothed(values, 3), [1.5, 1.5, 3.0, 6.0, 6.0])
    np.testing.assert_allclose(smoothed(values, 1), values)


def test_verdicts_name_the_setting_and_its_value() -> None:
    shares = dict(zip(PARTS, (0.31, 0.5, 0.19, 0.0), strict=True))
    said = verdicts(shares, clipped=0.9, padding=0.12, settings={"loader": {"workers": 1}, "optimizer": {"clip": 5.0}})
    assert said[0] == "data wait is 31% of the time: raise loader.workers (now 1)."
    assert said[1].startswith("communication is 19% of the time: raise plan.step_seconds")
    assert any("padding is 12%" in one for one in said)
    (clips,) = [one for one in said if "90% of the steps after the warm-up are clipped" in one]
    assert "optimizer.clip (now 5.0)" in clips


def test_clipping_while_the_learning_rate_rises_is_no_fault(tmp_path: Path) -> None:
    def said(steps: int, clipped: range) -> list[str]:
        lines = [
            line(step, data=0.01, clipped=step in clipped, learning_rate=1e-3 * min(step + 1, 30, 90 - step))
            for step in range(steps)
        ]
        return summary(read_curves(run_of(tmp_path / f"{steps}-{clipped}", "\n".join(lines) + "\n"))).verdicts

    assert not any("clipped" in one for one in said(55, range(30)))  # more than half of all
    assert any("100% of the steps after the warm-up are clipped" in one for one in said(55, range(29, 55)))
    assert not any("clipped" in one for one in said(40, range(40)))  # it has hardly ended


def test_nothing_to_mend_is_said() -> None:
    shares = dict(zip(PARTS, (0.01, 0.95, 0.02, 0.02), strict=True))
    assert verdicts(shares, 0.1, 0.01, {}) == ["nothing stands out: compute is 95% of the time."]


def test_runs_are_told_apart_by_as_little_as_is_needed(tmp_path: Path) -> None:
    a, b, c = (read_curves(run_of(tmp_path / name, whole(1))) for name in ("x/run", "y/run", "y/other"))
    assert names([a]) == ["run"]
    assert names([a, c]) == ["run", "other"]
    assert names([a, b]) == ["x/run", "y/run"]
    assert names([a, a]) == ["run (1)", "run (2)"]
