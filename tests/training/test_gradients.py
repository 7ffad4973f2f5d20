"""The gradient of a step is that of the sum over all ranks, divided by the count over all ranks."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
import soundfile
import torch

from allears.corpora.find import find
from allears.loading.collate import collate
from allears.loading.collection import Collection, SourceSettings
from allears.loading.example import ExampleReader
from allears.run.recognise import load
from allears.shards.prepare import Corpus, prepare
from allears.training.checkpoint import checkpoints, read_tensors
from allears.world import World

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from torch import Tensor

ALONE = World(0, 1, 0, 1, torch.device("cpu"))
SPOKEN = (*[(0.8, "low mid high top")] * 12, *[(3.2, "a")] * 3)
"""(seconds, text): one micro-batch of many short utterances full of text, one of few long ones with hardly any."""
STILL = (
    "plan.step_seconds=20",
    "plan.micro_batches=2",
    "tokenizer.kind=characters",
    "tokenizer.minimum_count=1",
    "model.spec_augment=null",
    "model.encoder.dropout=0",
    "optimizer.learning_rate.value=1e-30",  # the weights stay, and the first moment tells the gradient
    "optimizer.clip=1e9",
    "training.steps=1",
)


@pytest.fixture(scope="module")
def uneven(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of `SPOKEN`, in noise."""
    folder = tmp_path_factory.mktemp("uneven")
    corpus = folder / "corpus"
    corpus.mkdir()
    draw = np.random.default_rng(0)
    for n, (seconds, _) in enumerate(SPOKEN):
        soundfile.write(corpus / f"u{n:02d}.wav", draw.normal(0, 3000, int(seconds * 16000)).astype(np.int16), 16000)
    (corpus / "list.tsv").write_text("".join(f"u{n:02d}.wav\t{text}\n" for n, (_, text) in enumerate(SPOKEN)))
    found = find(corpus / "list.tsv", None)
    prepare(Corpus(corpus, found.layout, found.utterances, found.rejections), folder / "dataset", processes=1)
    return folder / "dataset"


def expected(run: Path, dataset: Path) -> tuple[Tensor, Tensor, list[int]]:
    """Of the run's only step: the gradient of the sum over the whole count, that of the mean of means, and counts."""
    model, tokenizer, _ = load(run, ALONE)
    model.train()
    used = json.loads((run / "ledger" / "rank-0.jsonl").read_text())["used"]
    collection = Collection.open([SourceSettings(dataset=str(dataset))])
    with ExampleReader(collection, tokenizer, 0, None) as reader:
        losses = [model(collate([reader.example(n, 0) for n in used[place]])) for place in ("0", "1")]
    parameters = list(model.parameters())
    sums = [loss.sums["ctc"] for loss in losses]
    counts = [int(loss.counts["ctc"]) for loss in losses]
    of_sum, of_means = (
        torch.cat([part.flatten() for part in torch.autograd.grad(total, parameters, retain_graph=True)])
        for total in (sum(sums) / sum(counts), sum(s / n for s, n in zip(sums, counts, strict=True)) / 2)
    )
    return of_sum, of_means, counts


@pytest.mark.case("transformers PR 46068")
def test_ranks_with_very_unequal_numbers_of_tokens_give_the_gradient_of_one_batch(
    command: Callable[..., subprocess.CompletedProcess[str]], uneven: Path, small: Sequence[str], tmp_path: Path
) -> None:
    found = {}
    for size in (1, 2):
        run = tmp_path / f"world-{size}"
        command("train", "tiny", f"dataset={uneven}", "--out", run, *small, *STILL, "--processes", size)
        moments = read_tensors(checkpoints(run)[-1] / "optimizer.safetensors")
        names = [name for name, _ in load(run, ALONE)[0].named_parameters()]
        found[size] = torch.cat([moments[f"{name}.exp_avg"].flatten() for name in names]) / (1 - 0.9)
    of_sum, of_means, counts = expected(tmp_path / "world-1", uneven)
    assert max(counts) > 50 * min(counts)
    assert torch.equal(found[1], found[2])
    assert (found[2] - of_sum).norm() / of_sum.norm() < 1e-5
    assert (of_means - of_sum).norm() / of_sum.norm() > 0.1
