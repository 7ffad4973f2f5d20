from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

from allears.errors import SettingsError
from allears.layers.attention import position_table, visible_keys
from allears.layers.batch_norm import taken_sums, update_running
from allears.models.conformer import ConformerBlock, ConformerEncoder, ConformerSettings
from allears.settings import build

BINS = 8
LENGTHS = (70, 41, 33, 8, 5, 2, 1)
KINDS = [
    {"positions": positions, "norm": norm, "block_norm": causal, "causal": causal, "subsampling": subsampling}
    for positions, norm, causal, subsampling in product(
        ("rotary", "relative"), ("batch", "layer"), (False, True), (4, 8)
    )
]


def settings(**changed: Any) -> ConformerSettings:
    small = {"width": 16, "blocks": 2, "heads": 2, "kernel": 5, "subsampling_channels": 4, "dropout": 0.0}
    return ConformerSettings.model_validate(small | changed)


def utterances(lengths: tuple[int, ...], seed: int = 1) -> list[torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    return [torch.randn(length, BINS, generator=draw) for length in lengths]


def padded(some: list[torch.Tensor], extra: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """A batch whose padding is no zeros."""
    features = torch.nn.utils.rnn.pad_sequence(some, batch_first=True, padding_value=3.0)
    return torch.nn.functional.pad(features, (0, 0, 0, extra), value=-7.0), torch.tensor([len(one) for one in some])


def encoder(kind: ConformerSettings) -> ConformerEncoder:
    """One whose norms, biases and running statistics are those of no beginner, so that they matter."""
    torch.manual_seed(0)
    made = kind.build(BINS)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    for _ in range(3):
        made(*padded(utterances(LENGTHS)))
        update_running(made, taken_sums(made, torch.device("cpu")))
    return made.eval()


def first_block(kind: ConformerSettings) -> ConformerBlock:
    block = encoder(kind).blocks[0]
    assert isinstance(block, ConformerBlock)
    return block


@torch.no_grad()
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: "-".join(map(str, kind.values())))
def test_an_utterance_is_encoded_alike_alone_and_in_any_padding(kind: dict[str, Any]) -> None:
    made = encoder(settings(**kind))
    some = utterances(LENGTHS)
    for training in (False, True) if kind["norm"] == "layer" else (False,):
        made.train(training)
        for extra in (0, 1, 50):
            together, lengths = made(*padded(some, extra))
            for row, one in enumerate(some):
                alone, length = made(*padded([one]))
                assert lengths[row] == length[0] == alone.shape[1]
                torch.testing.assert_close(together[row, : length[0]], alone[0], atol=1e-4, rtol=0)
        assert together.isfinite().all()


@torch.no_grad()
@pytest.mark.parametrize("positions", ["rotary", "relative"])
def test_batch_norm_in_training_does_not_see_padding(positions: str) -> None:
    """Its statistics are those of all frames of a batch, so the batch stays and only its padding grows."""
    made = encoder(settings(positions=positions)).train()
    some = utterances(LENGTHS)
    tight, lengths = made(*padded(some))
    sums = taken_sums(made, torch.device("cpu"))
    wide, _ = made(*padded(some, 90))
    for row, length in enumerate(lengths.tolist()):
        torch.testing.assert_close(wide[row, :length], tight[row, :length], atol=1e-4, rtol=0)
    torch.testing.assert_close(taken_sums(made, torch.device("cpu")), sums, atol=1e-3, rtol=1e-4)


@pytest.mark.parametrize("kind", [KINDS[0], KINDS[-1]])
def test_padding_gives_no_gradient(kind: dict[str, Any]) -> None:
    made = encoder(settings(**kind)).train()
    features, lengths = padded(utterances((40, 17)), extra=30)
    features.requires_grad_()
    states, shorter = made(features, lengths)
    sum(states[row, :length].square().sum() for row, length in enumerate(shorter.tolist())).backward()
    assert features.grad is not None
    # Batch norm lets all frames of a batch touch each other, but only the real ones.
    assert not features.grad[1, 17:].any()
    assert features.grad[1, :17].abs().sum(dim=1).gt(0).all()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in made.parameters())


@pytest.mark.parametrize("subsampling", [4, 8])
def test_frames_out_are_those_that_come_out(subsampling: int) -> None:
    kind = settings(subsampling=subsampling)
    made = kind.build(BINS).eval()
    counts = np.arange(0, 70)
    wanted = kind.frames(counts)
    for frames in counts.tolist():
        states, lengths = made(torch.zeros(1, max(frames, 1), BINS), torch.tensor([frames]))
        assert lengths.tolist() == [wanted[frames]]
        assert states.shape == (1, max(wanted[frames], 1), kind.width)
        assert states.isfinite().all()


@pytest.mark.parametrize("kind", KINDS[::2], ids=lambda kind: "-".join(map(str, kind.values())))
def test_utterances_without_frames_harm_nobody(kind: dict[str, Any]) -> None:
    made = encoder(settings(**kind)).train()
    states, lengths = made(torch.zeros(2, 30, BINS), torch.tensor([0, 0]))
    assert lengths.tolist() == [0, 0]
    states.sum().backward()
    assert all(parameter.grad is None or parameter.grad.isfinite().all() for parameter in made.parameters())
    made.eval()
    some = utterances((20, 0))
    with torch.no_grad():
        together, _ = made(*padded(some))
        torch.testing.assert_close(together[:1], made(*padded(some[:1]))[0], atol=1e-5, rtol=0)


@torch.no_grad()
@pytest.mark.parametrize("norm", ["batch", "layer"])
@pytest.mark.parametrize("causal", [True, False])
def test_a_causal_convolution_sees_no_later_frame(norm: str, causal: bool) -> None:
    convolution = first_block(settings(norm=norm, causal=causal)).convolution
    x, real = torch.randn(1, 20, 16, generator=torch.Generator().manual_seed(2)), torch.ones(1, 20, 1)
    changed = x.clone()
    changed[:, 12, 3] += 5
    moved = (convolution(x, real) - convolution(changed, real)).abs().amax(dim=2)[0].gt(1e-7).nonzero()[:, 0]
    assert moved.tolist() == (list(range(12, 17)) if causal else list(range(10, 15)))


@torch.no_grad()
@pytest.mark.parametrize("positions", ["rotary", "relative"])
def test_the_order_of_frames_matters(positions: str) -> None:
    """Without positions attention could not tell a sequence from its mirror image."""
    attention = first_block(settings(positions=positions)).attention
    x, lengths = torch.randn(1, 9, 16, generator=torch.Generator().manual_seed(3)), torch.tensor([9])
    table = position_table(attention.positions, 9, 16, 2, x.device)
    forth = attention(x, visible_keys(lengths, 9), table)
    back = attention(x.flip(1), visible_keys(lengths, 9), table).flip(1)
    assert (forth - back).abs().max() > 0.01


@torch.no_grad()
@pytest.mark.parametrize("kind", KINDS[::4], ids=lambda kind: "-".join(map(str, kind.values())))
def test_bfloat16_follows_float32(kind: dict[str, Any]) -> None:
    made = encoder(settings(**kind)).train()
    some = padded(utterances((70, 41)))
    exact, lengths = made(*some)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough, _ = made(*some)
    assert rough.dtype == torch.float32
    for row, length in enumerate(lengths.tolist()):
        error = (rough - exact)[row, :length].square().mean().sqrt() / exact[row, :length].square().mean().sqrt()
        assert 1e-5 < error < 0.1


def test_it_learns_what_needs_the_whole_utterance() -> None:
    """Each frame must name the sign of the first one, far outside every convolution."""
    torch.manual_seed(0)
    kind = settings(width=32, dropout=0.1)
    made, output = kind.build(BINS), torch.nn.Linear(32, 1)
    optimizer = torch.optim.AdamW([*made.parameters(), *output.parameters()], lr=5e-3)
    for step in range(60):
        signs = torch.randint(0, 2, (16,)).float()
        features = torch.randn(16, 120, BINS) * 0.1
        features[:, :4] += (signs * 2 - 1)[:, None, None]
        states, _ = made(features, torch.full((16,), 120))
        loss = torch.nn.functional.binary_cross_entropy_with_logits(
            output(states)[:, 15:, 0], signs[:, None].expand(-1, 15)
        )
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if step == 0:
            first = loss.item()
    assert first > 0.5
    assert loss.item() < 0.1


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"heads": 5}, r"^x: heads is 5: must cut the width, 128, into parts of one even size\.$"),
        ({"width": 36}, r"^x: heads is 4: must cut the width, 36, into parts of one even size\.$"),
        ({"kernel": 4}, r"^x: kernel is 4: must be odd"),
        ({"kernel": -1}, r"^x: kernel is -1: "),
        ({"subsampling": 6}, r"^x: subsampling is 6: input should be 4 or 8\.$"),
        ({"positions": "absolute"}, r"^x: positions is 'absolute': input should be 'rotary' or 'relative'\.$"),
        ({"norm": "group"}, r"^x: norm is 'group': input should be 'batch' or 'layer'\.$"),
        ({"dropout": 1.0}, r"^x: dropout is 1\.0: "),
        ({"width": 0}, r"^x: width is 0: .*greater than 0\.$"),
    ],
)
def test_what_cannot_be_built_is_a_sentence(values: dict[str, Any], expected: str) -> None:
    with pytest.raises(SettingsError, match=expected):
        build(ConformerSettings, values, "x")


def test_sizes_reach_from_a_million_to_two_hundred() -> None:
    with torch.device("meta"):
        small = ConformerSettings().build(80)
        large = ConformerSettings(width=768, blocks=14, heads=12, kernel=31).build(80)
    assert sum(parameter.numel() for parameter in small.parameters()) < 2_000_000
    assert 190e6 < sum(parameter.numel() for parameter in large.parameters()) < 210e6
