"""A training on disk: a folder that is complete or absent, opens with no other file, and holds nothing pickled.

step-00000120/  model.safetensors  optimizer.safetensors  state.json  settings.yaml  tokenizer/  checksums.json
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from allears.errors import CheckpointError, DataError, SettingsError
from allears.files import PARTIAL, read_json, removed, write_json, write_yaml, written_folder
from allears.reporting import say
from allears.settings import flat, read
from allears.training.checksums import OPTIMIZER, REMEDY, seal, verify

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    import torch
    from torch import Tensor, nn

    from allears.text.tokenizer import Tokenizer
    from allears.training.precision import Precision


FORMAT = 1
_NAME = re.compile(r"step-(\d{8,})")
DAMAGED = ".damaged"
_WRAPPERS = ("module.", "_orig_mod.")


@dataclass(frozen=True, slots=True)
class Position:
    """Where a training stands.

    Attributes:
        step: the next plan step.
        applied: optimiser steps applied.
        digest: of the training utterances, which a resumed run must find again.
        precision: what the steps were computed in.
        loss_scale: of a training in float16; see `allears.training.precision.LossScale`.
        steady: steps since the loss scale changed.
        score: error rate of the validation here, by which the best are kept; none where there was none.
        scored: which rate of what that is; only scores of the same are compared.
        quarantined: utterances that are left out, by their numbers.
    """

    step: int
    applied: int
    digest: str
    precision: Precision | None = None
    loss_scale: float | None = None
    steady: int = 0
    score: float | None = None
    scored: str | None = None
    quarantined: tuple[int, ...] = ()


def checkpoint_folder(run: Path, step: int) -> Path:
    """Where the checkpoint before plan step ``step`` lies."""
    return run / "checkpoints" / f"step-{step:08d}"


def checkpoints(run: Path) -> list[Path]:
    """Complete checkpoints of a run, oldest first."""
    folder = run / "checkpoints"
    if not folder.is_dir():
        return []
    found = [path for path in folder.iterdir() if _NAME.fullmatch(path.name)]
    return sorted(found, key=lambda path: int(path.name.removeprefix("step-")))


def existing(run: Path) -> Path:
    """``run``, which is a folder.

    Raises:
        CheckpointError: it is not.
    """
    if not run.is_dir():
        raise CheckpointError(f"there is no run folder {run}; name the folder of a run that has trained.")
    return run


def newest(run: Path) -> Path:
    """The newest complete checkpoint.

    Raises:
        CheckpointError: there is none.
    """
    found = checkpoints(existing(run))
    if not found:
        raise CheckpointError(f"{run} holds no complete checkpoint; name the folder of a run that has trained.")
    return found[-1]


def best(run: Path, most: int) -> list[Path]:
    """At most ``most`` complete checkpoints of a run that were validated: lowest error rate first, then the newest.

    Rates of another kind, or of other data, than the newest score's do not count; damaged checkpoints are passed over.
    """
    found: list[tuple[float, Path]] = []
    kind = None
    for path in reversed(checkpoints(run)):
        with contextlib.suppress(CheckpointError, DataError):  # whoever loads it says so
            position = load_position(path)
            if position.score is not None and position.scored == (kind := kind or position.scored):
                found.append((position.score, path))
    return [path for _, path in sorted(found, key=lambda pair: pair[0])[:most]]


def write(
    run: Path,
    position: Position,
    model: dict[str, Tensor],
    optimizer: dict[str, Tensor],
    settings: dict[str, Any],
    tokenizer: Tokenizer,
    keep: int,
    keep_best: int = 0,
) -> Path:
    """Write a checkpoint and remove all but the ``keep`` newest and the ``keep_best`` best; only one rank does this.

    Args:
        run: its folder.
        position: where it stands.
        model: its tensors by name.
        optimizer: see `optimizer_tensors`.
        settings: of the run.
        tokenizer: of the model.
        keep: how many of the newest stay.
        keep_best: how many of the best stay.

    Raises:
        CheckpointError: it cannot be written.
        DataError: likewise.
    """
    path = checkpoint_folder(run, position.step)
    with written_folder(path) as folder:
        write_tensors(model, folder / "model.safetensors")
        write_tensors(optimizer, folder / OPTIMIZER)
        write_yaml(folder / "settings.yaml", settings)
        tokenizer.save(folder / "tokenizer")
        write_position(folder, position)
        seal(folder)
    kept = {*checkpoints(run)[-keep:], *best(run, keep_best)}
    for old in path.parent.iterdir():
        if old.name.endswith(PARTIAL) or (_NAME.fullmatch(old.name) and old not in kept):
            removed(old)
    return path


def set_damaged_aside(run: Path) -> None:
    """Rename the newest checkpoints of ``run`` that are damaged, so that the newest one left is sound; say which.

    Raises:
        CheckpointError: there are checkpoints, and none is sound.
        DataError: one cannot be read.
    """
    damaged: list[tuple[Path, str]] = []
    for path in reversed(checkpoints(run)):
        try:
            verify(path)
        except CheckpointError as error:
            damaged.append((path, str(error).rpartition(";")[0]))
        else:
            break
    else:
        if damaged:
            raise CheckpointError(
                f"no checkpoint of {run} is sound: {damaged[0][1]}; name another --out folder to start anew."
            )
    for path, reason in damaged:
        aside = path.with_name(path.name + DAMAGED)
        removed(aside)
        path.rename(aside)
        say(f"note: {reason}; it is now {aside.name}, and an older one is gone on from.")


def resume(
    run: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    settings: dict[str, Any],
    data: str,
    may_change: tuple[str, ...],
) -> Position:
    """Load the newest checkpoint of ``run``, if there is one, and say where it stands.

    Args:
        run: its folder.
        model: takes the weights.
        optimizer: takes its state.
        settings: those of now, which must be those of the checkpoint but for ``may_change``.
        data: digest of the training utterances, which must be those of the checkpoint.
        may_change: names of settings and of groups of settings.

    Raises:
        SettingsError: a setting has changed.
        CheckpointError: the data has changed, or the checkpoint is damaged or of another architecture.
    """
    found = checkpoints(run)
    if not found:
        return Position(0, 0, data)
    path = found[-1]
    position = load_position(path)
    check_settings(run, settings, may_change)
    if position.digest != data:
        raise CheckpointError(
            f"{path} was trained on other utterances than train names now; "
            "name the same data to go on, or another --out folder to start anew."
        )
    load_model(path, model)
    load_optimizer(path, model, optimizer)
    return position


def check_settings(run: Path, settings: dict[str, Any], may_change: tuple[str, ...]) -> None:
    """Compare ``settings`` with those of the newest checkpoint of ``run``, but for ``may_change``.

    Raises:
        SettingsError: one differs.
    """
    found = checkpoints(run)
    if not found:
        return
    path = found[-1]
    before, now = dict(flat(read(str(path / "settings.yaml")))), dict(flat(settings))
    for name in {**now, **before}:  # in their own order
        free = any(name == group or name.startswith(f"{group}.") for group in may_change)
        if not free and (name not in now or name not in before or before[name] != now[name]):
            is_now, was = (repr(values[name]) if name in values else "not set" for values in (now, before))
            raise SettingsError(
                f"{name} is {is_now}, but {path} was trained with {was.replace('not set', 'no such setting')}; "
                "set it back to go on, or name another --out folder to start anew."
            )


def write_position(folder: Path, position: Position, **more: Any) -> None:
    """Write ``state.json``, which says where a training stood."""
    write_json(folder / "state.json", {"format": FORMAT, **asdict(position), **more})


def load_position(path: Path) -> Position:
    """The position of a checkpoint.

    Raises:
        CheckpointError: it is damaged or of another format.
    """
    try:
        state = read_json(path / "state.json")
        found = state.pop("format")
        if found != FORMAT:
            raise CheckpointError(
                f"{path} has format {found}, this version reads {FORMAT}; use the version that wrote it."
            )
        state.pop("average_of", None)
        return Position(**{**state, "quarantined": tuple(state.get("quarantined", ()))})
    except (DataError, TypeError, KeyError, AttributeError) as error:
        raise CheckpointError(f"{path} is damaged: {error}; {REMEDY}.") from error


def load_model(path: Path, model: nn.Module) -> None:
    """Put a checkpoint's weights into ``model``; prefixes of wrappers do not matter.

    Raises:
        CheckpointError: it is damaged, or of another architecture (the differing keys are named).
    """
    tensors = read_tensors(path / "model.safetensors")
    wanted = {_bare(name): value for name, value in model.state_dict().items()}
    differing = [f"{name} is missing" for name in wanted if name not in tensors]
    differing += [f"{name} is unknown" for name in tensors if name not in wanted]
    differing += [
        f"{name} is {list(tensors[name].shape)} instead of {list(value.shape)}"
        for name, value in wanted.items()
        if name in tensors and tensors[name].shape != value.shape
    ]
    if differing:
        more = f" and {len(differing) - 4} more" if len(differing) > 4 else ""
        raise CheckpointError(
            f"{path} is of another architecture: {'; '.join(differing[:4])}{more}; "
            "use the settings it was trained with, or another run folder."
        )
    model.load_state_dict({name: tensors[_bare(name)] for name in model.state_dict()})


def load_optimizer(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Put a checkpoint's optimiser state into ``optimizer``, which belongs to ``model``.

    Raises:
        CheckpointError: it is damaged or of another model.
    """
    tensors = read_tensors(path / OPTIMIZER)
    state: dict[int, dict[str, Tensor]] = {}
    for number, name in enumerate(_parameter_names(model, optimizer)):
        found = {key.rpartition(".")[2]: value for key, value in tensors.items() if key.rpartition(".")[0] == name}
        if found:
            state[number] = found
    if len(state) * 3 != len(tensors):
        raise CheckpointError(f"{path / 'optimizer.safetensors'} belongs to another model; use another run folder.")
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a file, by names without the prefixes of wrappers.

    Raises:
        CheckpointError: it is damaged.
    """
    try:
        return {_bare(name): value for name, value in load_file(path).items()}
    except (SafetensorError, OSError, RuntimeError) as error:  # the last: a file that is gone
        raise CheckpointError(f"{path} is damaged: {error}; remove its folder to fall back to an older one.") from error


def write_tensors(tensors: dict[str, Tensor], path: Path) -> None:
    """Write tensors to a file, by names without the prefixes of wrappers.

    Raises:
        CheckpointError: it cannot be written.
    """
    plain = {_bare(name): value.detach().cpu().contiguous() for name, value in tensors.items()}
    try:
        save_file(plain, path)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(
            f"{path} cannot be written: {error}; the earlier checkpoints stay, free some space."
        ) from error
    path.chmod(0o644)  # safetensors keeps a file from everybody else


def _bare(name: str) -> str:
    while name.startswith(_WRAPPERS):
        name = name.removeprefix(_WRAPPERS[0]).removeprefix(_WRAPPERS[1])
    return name


def _parameter_names(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[str]:
    """Names of the optimiser's parameters, in the order of its numbers."""
    names = {id(parameter): _bare(name) for name, parameter in model.named_parameters()}
    return [names[id(parameter)] for group in optimizer.param_groups for parameter in group["params"]]


def optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimiser's state by the names of its parameters."""
    names = _parameter_names(model, optimizer)
    state: dict[int, dict[str, Tensor]] = optimizer.state_dict()["state"]
    return {f"{names[n]}.{key}": value for n, values in state.items() for key, value in values.items()}
