"""Saving beside the steps: what is saved, when it may change, and what happens when it cannot be written."""

from __future__ import annotations

import os
import pickle
import re
import resource
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest
import torch

from allears.errors import CheckpointError, DataError
from allears.text.tokenizer import Tokenizer, TokenizerSettings
from allears.training import checksums
from allears.training import saver as saver_module
from allears.training.average import chosen, write_average
from allears.training.checkpoint import (
    Position,
    best,
    checkpoint_folder,
    checkpoints,
    load_model,
    load_optimizer,
    read_tensors,
    resume,
    set_damaged_aside,
    write,
)
from allears.training.checksums import verify
from allears.training.optimizer import OptimizerSettings, with_state
from allears.training.saver import BackgroundSaver

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOKENIZER = Tokenizer.train(["low mid high"] * 3, TokenizerSettings(pieces=14))[0]


def made(width: int = 64) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.LayerNorm(width))
    return model, with_state(OptimizerSettings().build(model))


def change(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()


def saving(run: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> BackgroundSaver:
    return BackgroundSaver(run, model, optimizer, {"seed": 1}, TOKENIZER, 3, 0)


def at(step: int) -> Position:
    return Position(step, step, "data")


@pytest.fixture
def slow_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Nothing is written before the event is set."""
    may = threading.Event()
    monkeypatch.setattr(saver_module, "write", lambda *given: (may.wait(20), write(*given)))
    yield may
    may.set()


def test_the_steps_go_on_while_a_checkpoint_is_written(tmp_path: Path, slow_disk: threading.Event) -> None:
    model, optimizer = made()
    change(model, optimizer)
    wanted = {name: value.clone() for name, value in model.state_dict().items()}
    moments = [state["exp_avg"].clone() for state in optimizer.state.values()]
    with saving(tmp_path, model, optimizer) as saver:
        saver.save(at(1))
        saver.copied()
        change(model, optimizer)
        assert checkpoints(tmp_path) == []
        slow_disk.set()
        saver.finish()
        assert [path.name for path in checkpoints(tmp_path)] == ["step-00000001"]
    other, others = made()
    load_model(checkpoint_folder(tmp_path, 1), other)
    load_optimizer(checkpoint_folder(tmp_path, 1), other, others)
    for name, value in other.state_dict().items():
        assert torch.equal(value, wanted[name])
        assert not torch.equal(value, model.state_dict()[name])
    for state, moment in zip(others.state.values(), moments, strict=True):
        assert torch.equal(state["exp_avg"], moment)


def test_a_step_waits_until_what_it_changes_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, optimizer = made()
    may, changed = threading.Event(), threading.Event()
    take = saver_module._Copies.take
    monkeypatch.setattr(saver_module._Copies, "take", lambda self: (may.wait(20), take(self)))
    with saving(tmp_path, model, optimizer) as saver:

        def apply() -> None:
            saver.copied()
            changed.set()

        saver.save(at(1))
        step = threading.Thread(target=apply)
        step.start()
        assert not changed.wait(0.2)
        may.set()
        assert changed.wait(20)
        step.join()
        saver.finish()


def test_the_state_that_is_made_before_the_first_step_changes_nothing() -> None:
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(9, 9), torch.nn.LayerNorm(9))
    other, others = made(9)
    other.load_state_dict(model.state_dict())
    with torch.no_grad():
        for one in (model, other):
            next(one.parameters())[0, 0] = -0.0
    optimizer = OptimizerSettings().build(model)
    with_state(others)
    assert torch.signbit(next(other.parameters())[0, 0])
    for _ in range(3):
        change(model, optimizer)
        change(other, others)
    for name, value in model.state_dict().items():
        assert torch.equal(value, other.state_dict()[name])


@pytest.fixture
def small_files() -> Iterator[None]:
    """No file may be larger than 20 kB: the closest to a full disk that needs no disk of its own."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_is_said_and_the_earlier_checkpoint_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    model, optimizer = made(100)
    with saving(tmp_path, model, optimizer) as saver:
        saver.save(at(1))
        saver.finish()
        request.getfixturevalue("small_files")
        saver.save(at(2))
        saver.save(at(3))  # waits for the one before
        said = capsys.readouterr().err
        assert "note: step-00000002 is not saved: " in said
        assert "step-00000002/model.safetensors cannot be written: " in said
        assert "; the earlier ones stay, and another try will follow." in said
        with pytest.raises(CheckpointError) as raised:
            saver.finish()
    ended = str(raised.value)
    assert re.match(r"the last checkpoint is not saved: .*step-00000003/model.safetensors cannot be written: ", ended)
    assert re.search(r"; free some space there, .* the same command goes on from step-00000001, the newest", ended)
    assert ".partial" not in said + capsys.readouterr().err + ended
    assert ended.count(";") == 1  # one remedy
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-00000001"]
    verify(checkpoint_folder(tmp_path, 1))


def test_the_last_checkpoint_is_tried_again(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    model, optimizer = made(100)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    request.getfixturevalue("small_files")
    with saving(tmp_path, model, optimizer) as saver:
        saver.save(at(1))
        saver.copied()
        assert saver._written is not None
        assert not saver._written.result()
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        saver.finish()
    verify(checkpoint_folder(tmp_path, 1))


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "settings.yaml", "state.json"])
def test_a_damaged_checkpoint_is_set_aside_for_an_older_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    model, optimizer = made()
    with saving(tmp_path, model, optimizer) as saver:
        for step in (1, 2):
            saver.save(at(step))
        saver.finish()
    file = checkpoint_folder(tmp_path, 2) / name
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with pytest.raises(CheckpointError, match=f"step-00000002 is damaged: {name} has"):
        verify(checkpoint_folder(tmp_path, 2))
    set_damaged_aside(tmp_path)
    assert "it is now step-00000002.damaged" in capsys.readouterr().err
    assert [path.name for path in checkpoints(tmp_path)] == ["step-00000001"]
    assert resume(tmp_path, *made(), {"seed": 1}, "data", ()) == at(1)


def test_a_missing_file_and_damaged_checksums_are_named(tmp_path: Path) -> None:
    with saving(tmp_path, *made()) as saver:
        saver.save(at(1))
        saver.finish()
    path = checkpoint_folder(tmp_path, 1)
    (path / "optimizer.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"optimizer\.safetensors is missing; remove it to fall back"):
        verify(path)
    verify(path, optimizer=False)
    (path / "checksums.json").write_text("[]")
    with pytest.raises(CheckpointError, match="is damaged"):
        verify(path)
    (path / "checksums.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"checksums.json does not know model.safetensors"):
        verify(path)


def test_when_no_checkpoint_is_sound_nothing_is_begun_anew(tmp_path: Path) -> None:
    with saving(tmp_path, *made()) as saver:
        for step in (1, 2):
            saver.save(at(step))
        saver.finish()
    for path in checkpoints(tmp_path):
        (path / "model.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"no checkpoint of .* is sound: .*step-00000002 is damaged: model"):
        set_damaged_aside(tmp_path)
    assert [path.name for path in checkpoints(tmp_path)] == ["step-00000001", "step-00000002"]
    (checkpoint_folder(tmp_path, 2) / "checksums.json").unlink()
    with pytest.raises(CheckpointError, match=r"no checkpoint of .* is sound"):
        set_damaged_aside(tmp_path)


def test_what_cannot_be_read_is_not_taken_for_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with saving(tmp_path, *made()) as saver:
        saver.save(at(1))
        saver.finish()

    def denied(path: Path) -> dict[str, Any]:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(checksums, "_checksum", denied)
    with pytest.raises(DataError, match=r"step-00000001 cannot be read: .*Permission denied.* it may be whole"):
        set_damaged_aside(tmp_path)
    assert [path.name for path in checkpoints(tmp_path)] == ["step-00000001"]


class Evil:
    """What a pickle of it does when it is loaded."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.mark),)


def test_code_in_a_checkpoint_does_not_run(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    evil = pickle.dumps(Evil(mark))
    pickle.loads(evil)  # noqa: S301
    mark.rmdir()  # it does what it should, when it is loaded
    with saving(tmp_path, *made()) as saver:
        saver.save(at(1))
        saver.finish()
    path = checkpoint_folder(tmp_path, 1)
    (path / ".metadata").write_bytes(evil)
    (path / "model.pt").write_bytes(evil)
    assert resume(tmp_path, *made(), {"seed": 1}, "data", ()) == at(1)
    for name in ("model.safetensors", "optimizer.safetensors", "settings.yaml", "state.json"):
        kept = (path / name).read_bytes()
        (path / name).write_bytes(evil)
        with pytest.raises(CheckpointError):
            verify(path)
        with pytest.raises(Exception, match=r".") as raised:
            resume(tmp_path, *made(), {"seed": 1}, "data", ())
        assert "damaged" in str(raised.value) or "settings.yaml" in str(raised.value)
        (path / name).write_bytes(kept)
    assert not mark.exists()
    assert read_tensors(path / "model.safetensors")


def test_what_lies_beside_the_files_of_a_checkpoint_is_never_opened(tmp_path: Path) -> None:
    with saving(tmp_path, *made()) as saver:
        for step in (1, 2):
            saver.save(Position(step, step, "data", score=0.5, scored="wer"))
        saver.finish()
    extra = ("data.pkl", ".metadata", "tokenizer/more.bin", "weights.safetensors")
    for path in checkpoints(tmp_path):
        for name in extra:
            (path / name).write_bytes(pickle.dumps(Evil(tmp_path / "ran")))
    opened: list[str] = []
    looking = True

    def look(event: str, given: tuple[Any, ...]) -> None:
        if looking and event == "open":
            opened.append(str(given[0]))

    sys.addaudithook(look)  # for the rest of the process
    set_damaged_aside(tmp_path)
    resume(tmp_path, *made(), {"seed": 1}, "data", ())
    write_average(tmp_path / "average", best(tmp_path, 2))
    chosen(tmp_path)
    looking = False
    assert any(path.endswith("state.json") for path in opened)
    assert [path for path in opened if path.endswith(extra)] == []
    assert not (tmp_path / "average" / "data.pkl").exists()
