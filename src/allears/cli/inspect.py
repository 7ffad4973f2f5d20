"""``allears inspect``: pictures of an utterance, of a step, of runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from allears.pictures.curves import Curves, Summary

OUT = typer.Option(Path("inspect"), help="Folder for the pictures.")
AS_JSON = typer.Option(False, "--json", help="Print a JSON object as the last line.")


def _made(out: Path) -> None:
    """Make the folder for pictures before anything else is done."""
    from allears.errors import SettingsError

    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingsError(f"--out {out} cannot be made ({error.strerror}); name another folder.") from error


def utterance(
    dataset: Path = typer.Argument(help="A prepared dataset."),
    name: str = typer.Argument(metavar="ID", help="The utterance's id."),
    config: str = typer.Option("tiny", help="Whose features and augmentation are shown."),
    run: Path = typer.Option(None, help="A run (or checkpoint) to take them from, and the tokenizer; before --config."),
    epoch: int = typer.Option(0, min=0, help="Whose draws are shown, from 0."),
    out: Path = OUT,
    as_json: bool = AS_JSON,
) -> None:
    """Show an utterance as the model hears it: waveform, levels, features before and after augmentation; write the wav.

    Example: allears inspect utterance data/digits 0_george_0 --run runs/digits
    """
    from allears.inspection import utterance as gathered
    from allears.pictures.canvas import file_name
    from allears.pictures.draw_utterance import draw_utterance
    from allears.pictures.utterance import write_audio
    from allears.reporting import show, show_json

    _made(out)
    heard = gathered(dataset, name, config, run, epoch)
    stem = out / f"utterance-{file_name(heard.id)}"
    picture, audio = stem.with_name(f"{stem.name}.png"), [stem.with_name(f"{stem.name}.wav")]
    write_audio(audio[0], heard.before)
    if heard.waveform_changes:
        audio.append(stem.with_name(f"{stem.name}-epoch-{epoch}.wav"))
        write_audio(audio[1], heard.after)
    draw_utterance(heard, picture)
    found = heard.levels
    rows = [
        ("id", heard.id),
        ("speaker", heard.speaker or "-"),
        ("length", f"{heard.seconds:.3f} s, {len(heard.features):,} frames"),
        ("level", f"{found.level:.1f} dBFS (root mean square)"),
        ("peak", f"{found.peak:.1f} dBFS" + (f", {found.clipped} samples at full scale" if found.clipped else "")),
        ("silence", f"{found.silence:.0%} (25 ms windows that are 25 dB or more below the loudest)"),
        ("DC offset", f"{found.dc_offset:+.3%} of full scale"),
        ("text", heard.text),
        ("normalised", heard.normalised),
        ("tokens", _tokens(heard.tokens)),
        ("hidden", f"{heard.hidden.mean() if heard.hidden.size else 0:.0%} of the features in epoch {epoch}"),
        ("picture", str(picture)),
        ("audio", ", ".join(map(str, audio))),
    ]
    for head, value in rows:
        show(f"{head:<12}{value}")
    if as_json:
        show_json(
            {
                "id": heard.id,
                "speaker": heard.speaker,
                "seconds": heard.seconds,
                "frames": len(heard.features),
                "level_dbfs": _json_number(found.level),
                "peak_dbfs": _json_number(found.peak),
                "silence": found.silence,
                "dc_offset": found.dc_offset,
                "clipped": found.clipped,
                "text": heard.text,
                "normalised": heard.normalised,
                "tokens": None if heard.tokens is None else [token for token, _ in heard.tokens],
                "hidden": float(heard.hidden.mean()) if heard.hidden.size else 0.0,
                "picture": str(picture),
                "audio": [str(path) for path in audio],
            }
        )


def _tokens(tokens: Any) -> str:
    if tokens is None:
        return "- (a tokenizer comes with --run)"
    return f"{len(tokens)}: " + " ".join(f"{text or '·'}({token})" for token, text in tokens)


def _json_number(value: float) -> float | None:
    """JSON knows no infinity and no NaN."""
    return value if abs(value) < float("inf") else None


def batch(
    place: str = typer.Argument(metavar="CONFIG|RUN", help="A config, or the folder of a run."),
    rest: list[str] = typer.Argument(
        None,
        metavar="[DATASET] [KEY=VALUE]...",
        help="A prepared dataset (default: what the settings train on), and settings to change.",
    ),
    step: int = typer.Option(0, min=0, help="The plan step, from 0."),
    split: str = typer.Option(None, help="A part of the dataset. Default: the settings' own."),
    out: Path = OUT,
    as_json: bool = AS_JSON,
) -> None:
    """Show what one optimiser step holds: the utterances of each micro-batch, their padding and cost.

    Example: allears inspect batch tiny data/libri plan.step_seconds=240 --step 120
    """
    from allears.errors import SettingsError
    from allears.inspection import batch as gathered
    from allears.pictures.canvas import file_name
    from allears.pictures.draw_batch import draw_batch
    from allears.reporting import show, show_json, table

    _made(out)
    given = rest or []
    datasets, overrides = [word for word in given if "=" not in word], [word for word in given if "=" in word]
    if len(datasets) > 1:
        raise SettingsError(f"only one dataset can be inspected, not {' and '.join(datasets)}; leave the others out.")
    found = gathered(place, Path(datasets[0]) if datasets else None, split, step, overrides)
    picture = out / f"batch-{file_name(Path(place).resolve().name.removesuffix('.yaml'))}-{step:08d}.png"
    draw_batch(found, picture)
    figures = found.figures()
    named = [*((str(place), one) for place, one in enumerate(figures["micro_batches"])), ("all", figures)]
    table(
        f"step {step} (epoch {found.epoch}, {found.inside + 1} of {found.steps_per_epoch})",
        ["micro-batch", "utterances", "seconds", "longest", "padding", "cost", "tokens"],
        [
            [
                name,
                f"{one['utterances']:,}",
                f"{one['audio_seconds']:,.1f}",
                f"{one['longest_seconds']:.2f}",
                f"{one['padding']:.1%}",
                f"{one['cost']:,.1f}",
                f"{one['tokens']:,}",
            ]
            for name, one in named
        ],
    )
    show(f"the most costly micro-batch costs {found.imbalance:.3f} × the mean\npicture: {picture}")
    if as_json:
        show_json({**figures, "picture": str(picture)})


def run(
    runs: list[Path] = typer.Argument(metavar="RUN...", help="Folders of runs, finished or going on."),
    out: Path = OUT,
    as_json: bool = AS_JSON,
) -> None:
    """Show how runs went: loss, gradient norm, learning rate, validation, where the time went; and what to change.

    Example: allears inspect run runs/first runs/second
    """
    from allears.pictures.canvas import file_name
    from allears.pictures.curves import names, read_curves, summary
    from allears.pictures.draw_run import draw_run
    from allears.reporting import counted, say, show, show_json, table

    _made(out)
    curves = [read_curves(folder) for folder in runs]
    titles = names(curves)
    kind = "run" if len(curves) == 1 else "runs"
    picture = out / f"{kind}-{file_name('+'.join(titles))}.png"
    draw_run(curves, picture)
    summaries = [summary(one) for one in curves]
    for one in curves:
        if one.unreadable:
            lines = counted(one.unreadable, "unreadable line")
            say(f"note: {lines} of {one.run / 'metrics.jsonl'} passed over.")
    described = [_described(one) for one in summaries]
    table("", ["", *titles], [[head, *(rows[head] for rows in described)] for head in described[0]])
    for title, found in zip(titles, summaries, strict=True):
        for verdict in found.verdicts:
            show(f"{title}: {verdict}" if len(curves) > 1 else verdict)
    show(f"picture: {picture}")
    if as_json:
        show_json(
            {
                "runs": [_json(one, found) for one, found in zip(curves, summaries, strict=True)],
                "picture": str(picture),
            }
        )


def ledger(
    run: Path = typer.Argument(help="Folder of a run, finished or going on."),
    as_json: bool = AS_JSON,
) -> None:
    """Prove that each utterance was used exactly once a pass, through kills and changes of the number of processes.

    Exit code 1 when it was not.

    Example: allears inspect ledger runs/first
    """
    from dataclasses import asdict

    from allears.audit import audit
    from allears.reporting import counted, show, show_json

    found = audit(run)
    for problem in found.problems[:20]:
        show(problem)
    if len(found.problems) > 20:
        show(f"and {len(found.problems) - 20:,} more")
    passes = f"each exactly once in {counted(found.epochs, 'whole epoch')}" if found.epochs else "no epoch is whole yet"
    verdict = "NOT as planned" if found.problems else f"as planned, {passes}"
    show(
        f"{counted(found.steps, 'step')}: utterances were used {found.used:,} times, could not be used "
        f"{found.rejected:,} times: {verdict}"
    )
    if as_json:
        show_json({"complete": not found.problems, **asdict(found), "run": str(run)})
    if found.problems:
        raise typer.Exit(1)


def quarantine(
    run: Path = typer.Argument(help="Folder of a run."),
    name: str = typer.Option(None, "--replay", help="Run this micro-batch again, named as in the list."),
    as_json: bool = AS_JSON,
) -> None:
    """List what a run has put into quarantine, or run one of its micro-batches again with the weights that it met.

    Example: allears inspect quarantine runs/first --replay step-00000012-place-3
    """
    from dataclasses import asdict

    from allears.errors import DataError
    from allears.replay import replay
    from allears.reporting import say, show, show_json
    from allears.training.quarantine import kept, read_kept

    if name is not None:
        found = replay(run, name)
        verdict = f"{found.first} is not finite" if found.first else "everything is finite"
        show(f"{name}, with {found.weights}: {verdict}, loss {found.loss:g} (then: {found.guilty.first})")
        if as_json:
            show_json({**asdict(found), "guilty": found.guilty.model_dump(), "loss": _json_number(found.loss)})
        return
    held = {}
    for place in kept(run):
        try:
            guilty = read_kept(place)
        except DataError as error:
            say(f"note: {error}")
            continue
        held[place.name] = guilty.model_dump()
        show(f"{place.name}: {guilty.first} was not finite; {', '.join(guilty.ids)}")
    if not held:
        show("nothing is in quarantine")
    if as_json:
        show_json({"quarantine": held, "run": str(run)})


def _described(one: Summary) -> dict[str, str]:
    """A column of the summary's table."""
    from allears.reporting import duration

    best = one.best
    known = one.steps > 0
    return {
        "steps": f"{one.steps:,}",
        "epochs begun": f"{one.epochs:,}",
        "audio heard": f"{one.audio_hours:,.2f} h",
        "time in steps": duration(one.seconds),
        **{f"· {part}": f"{one.shares[part]:.1%}" if one.shares else "-" for part in _parts()},
        "× real time": f"{one.times_real:,.1f}" if one.times_real == one.times_real else "-",
        "loss at the end": f"{one.loss:.3f}" if one.loss == one.loss else "-",
        "best validation": f"{best.value:.2%} {best.rate} ({best.name}, step {best.step})" if best else "-",
        "clipped steps": f"{one.clipped:.1%}" if one.clipped == one.clipped else "-",
        "padding": f"{one.padding:.2%}" if one.padding == one.padding else "-",
        "peak memory": f"{one.memory_bytes / 2**30:.2f} GiB" if known else "-",
        "rejected": f"{one.rejected:,}",
    }


def _parts() -> tuple[str, ...]:
    from allears.pictures.curves import PARTS

    return PARTS


def _json(curves: Curves, found: Summary) -> dict[str, object]:
    from dataclasses import asdict

    values = {name: _json_number(value) if isinstance(value, float) else value for name, value in asdict(found).items()}
    return {"run": str(curves.run), **values, "unreadable": curves.unreadable}
