from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn.functional import ctc_loss

pytest.importorskip("triton", reason="Triton is not installed")

TASKS = str(Path(__file__).parent / "ctc_kernel_tasks.py")
Case = tuple[Tensor, Tensor, Tensor, Tensor]


def case(lengths: list[int], transcripts: list[list[int]], vocabulary: int) -> Case:
    """Logits of as many frames as the longest has, and the transcripts, zero-padded."""
    draw = torch.Generator().manual_seed(len(lengths))
    logits = 2 * torch.randn(len(lengths), max(lengths), vocabulary, generator=draw)
    tokens = torch.zeros(len(transcripts), max(map(len, transcripts)), dtype=torch.int64)
    for row, transcript in enumerate(transcripts):
        tokens[row, : len(transcript)] = torch.tensor(transcript)
    return logits, tokens, torch.tensor(lengths), torch.tensor([len(one) for one in transcripts])


MIXED = case([12, 7, 5, 9, 1], [[1, 2, 3, 2, 1], [2, 2, 2], [], [3, 1, 3, 1, 3, 3], [2]], vocabulary=4)
EMPTY = case([4, 3], [[], []], vocabulary=3)
WIDE = case([70], [[1 + place % 3 for place in range(66)]], vocabulary=5)  # more states than the smallest block
IMPOSSIBLE = case([3, 6], [[1, 1, 2], [2, 2, 1]], vocabulary=3)
CASES = {"mixed": MIXED, "empty": EMPTY, "wide": WIDE, "impossible": IMPOSSIBLE}


def task(*arguments: object, **environment: str) -> str:
    command = [sys.executable, "-W", "ignore", TASKS, *map(str, arguments)]
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def computed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Tensor, Tensor]]:
    """Losses and gradients at the logits, of the sum of row number × loss, by the kernels under the interpreter."""
    folder = tmp_path_factory.mktemp("ctc")
    spoiled = MIXED[0].clone()
    spoiled[0, 3, 2] = torch.nan
    spoiled[1, 7:] = torch.nan  # padding
    cases = {**CASES, "again": MIXED, "spoiled": (spoiled, *MIXED[1:])}
    torch.save(list(cases.values()), folder / "cases")
    task("run", folder / "cases", folder / "results", TRITON_INTERPRET="1")
    return dict(zip(cases, torch.load(folder / "results"), strict=True))


@pytest.mark.parametrize("name", list(CASES))
def test_the_kernels_give_torchs_loss_and_gradient(name: str, computed: dict[str, tuple[Tensor, Tensor]]) -> None:
    logits, tokens, lengths, token_lengths = CASES[name]
    leaf = logits.double().requires_grad_()
    scores = leaf.log_softmax(2).transpose(0, 1)
    expected = ctc_loss(scores, tokens, lengths, token_lengths, reduction="none")
    (wanted,) = torch.autograd.grad((expected * torch.arange(1, 1 + len(expected))).sum(), leaf)
    losses, gradient = computed[name]
    torch.testing.assert_close(losses.double(), expected.detach(), rtol=1e-6, atol=1e-6)
    possible = expected.isfinite()
    torch.testing.assert_close(gradient[possible].double(), wanted[possible], rtol=0, atol=1e-5)
    for row in torch.nonzero(~possible):
        assert gradient[row, : int(lengths[row])].isnan().all()


def test_what_cannot_be_aligned_is_among_the_cases(computed: dict[str, tuple[Tensor, Tensor]]) -> None:
    assert computed["impossible"][0].isinf().tolist() == [True, False]
    assert computed["mixed"][0].isfinite().all()


def test_the_same_bits_twice(computed: dict[str, tuple[Tensor, Tensor]]) -> None:
    for one, other in zip(computed["mixed"], computed["again"], strict=True):
        assert torch.equal(one, other)


def test_nan_stays_in_its_utterance_and_does_not_come_out_of_padding(
    computed: dict[str, tuple[Tensor, Tensor]],
) -> None:
    losses, gradient = computed["spoiled"]
    assert losses.isnan().tolist() == [True, False, False, False, False]
    assert gradient[0].isnan().any()
    assert torch.equal(gradient[2:], computed["mixed"][1][2:])
    assert torch.equal(gradient[1, :7], computed["mixed"][1][1, :7])


def test_the_kernels_compile_for_cuda_without_atomics(tmp_path: Path) -> None:
    code = task("compile", 80, 90, TRITON_INTERPRET="0", TRITON_CACHE_DIR=str(tmp_path))
    assert len(re.findall(r"\.visible \.entry", code)) == 6
    assert not re.findall(r"\b(?:atom|red)\.", code)
