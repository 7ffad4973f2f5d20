from __future__ import annotations

import torch
from torch import nn

from allears.layers.batch_norm import MaskedBatchNorm, batch_norms, taken_sums, update_running
from allears.layers.masking import real_frames

CPU = torch.device("cpu")
CHANNELS = 6


def frames(batch: int, length: int, seed: int = 0) -> torch.Tensor:
    draw = torch.Generator().manual_seed(seed)
    scale, shift = torch.rand(CHANNELS, generator=draw) + 0.5, torch.randn(CHANNELS, generator=draw)
    return torch.randn(batch, length, CHANNELS, generator=draw) * scale + shift


def real(lengths: list[int], longest: int) -> torch.Tensor:
    return real_frames(torch.tensor(lengths), longest)[:, :, None].float()


def shaken(norm: MaskedBatchNorm) -> MaskedBatchNorm:
    with torch.no_grad():
        norm.weight.copy_(torch.linspace(0.5, 2, CHANNELS))
        norm.bias.copy_(torch.linspace(-1, 1, CHANNELS))
    return norm


def test_padding_changes_nothing_on_real_frames() -> None:
    x = frames(3, 20)
    mask = real([20, 13, 1], 20)
    results = []
    for filling in (0.0, 1e4):
        norm = shaken(MaskedBatchNorm(CHANNELS))
        padded = torch.where(mask > 0, x, filling * (1 - mask)) if filling else x * mask
        padded = torch.cat((padded, torch.zeros(3, 7, CHANNELS)), dim=1)
        longer = torch.cat((mask, torch.zeros(3, 7, 1)), dim=1)
        results.append((norm(padded, longer)[:, :20], taken_sums(norm, CPU)))
    shorter = shaken(MaskedBatchNorm(CHANNELS))
    results.append((shorter(x * mask, mask), taken_sums(shorter, CPU)))
    kept = mask.bool().expand_as(x)
    torch.testing.assert_close(results[0][0][kept], results[2][0][kept], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(results[1][0][kept], results[2][0][kept], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(results[0][1], results[2][1])
    torch.testing.assert_close(results[1][1], results[2][1])


def test_without_padding_it_is_torchs_own() -> None:
    ours, theirs = shaken(MaskedBatchNorm(CHANNELS)), nn.BatchNorm1d(CHANNELS)
    with torch.no_grad():
        theirs.weight.copy_(ours.weight)
        theirs.bias.copy_(ours.bias)
    for step in range(3):
        x = frames(4, 25, step)
        x1, x2 = x.clone().requires_grad_(), x.clone().requires_grad_()
        mine, wanted = ours(x1, torch.ones(4, 25, 1)), theirs(x2.transpose(1, 2)).transpose(1, 2)
        update_running(ours, taken_sums(ours, CPU))
        torch.testing.assert_close(mine, wanted, atol=1e-5, rtol=1e-5)
        (mine**3).sum().backward()
        (wanted**3).sum().backward()
        assert x1.grad is not None
        assert x2.grad is not None
        torch.testing.assert_close(x1.grad, x2.grad, atol=2e-4, rtol=1e-4)
        assert ours.running_mean.dtype == torch.float32
        torch.testing.assert_close(ours.running_mean, theirs.running_mean, atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(ours.running_variance, theirs.running_var, atol=1e-6, rtol=1e-5)
    assert ours.weight.grad is not None
    torch.testing.assert_close(ours.weight.grad, theirs.weight.grad, atol=1e-3, rtol=1e-4)
    ours.eval()
    theirs.eval()
    torch.testing.assert_close(
        ours(x, torch.ones(4, 25, 1)), theirs(x.transpose(1, 2)).transpose(1, 2), atol=1e-5, rtol=1e-5
    )


def test_two_halves_give_the_running_statistics_of_the_whole() -> None:
    x, mask = frames(4, 30), real([30, 22, 9, 4], 30)
    whole, halves = MaskedBatchNorm(CHANNELS), MaskedBatchNorm(CHANNELS)
    whole(x * mask, mask)
    update_running(whole, taken_sums(whole, CPU))
    for part in (slice(0, 2), slice(2, 4)):
        halves(x[part] * mask[part], mask[part])
    update_running(halves, taken_sums(halves, CPU))
    torch.testing.assert_close(halves.running_mean, whole.running_mean, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(halves.running_variance, whole.running_variance, atol=1e-6, rtol=1e-5)
    kept = x[mask.bool().expand_as(x)].reshape(-1, CHANNELS)
    torch.testing.assert_close(whole.running_mean, 0.1 * kept.mean(dim=0), atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(whole.running_variance, 0.9 + 0.1 * kept.var(dim=0), atol=1e-6, rtol=1e-5)


def test_sums_start_again_from_zero() -> None:
    norm = MaskedBatchNorm(CHANNELS)
    norm(frames(2, 10), torch.ones(2, 10, 1))
    assert taken_sums(norm, CPU)[0] == 20
    assert not taken_sums(norm, CPU).any()
    norm(frames(1, 5), torch.ones(1, 5, 1))
    assert taken_sums(norm, CPU)[0] == 5


def test_evaluation_uses_the_running_statistics_and_moves_nothing() -> None:
    norm = shaken(MaskedBatchNorm(CHANNELS))
    norm.update(torch.cat((torch.tensor([10.0]), torch.full((CHANNELS,), 20.0), torch.full((CHANNELS,), 130.0))))
    assert torch.allclose(norm.running_mean, torch.full((CHANNELS,), 0.2))
    assert torch.allclose(norm.running_variance, torch.full((CHANNELS,), 0.9 + 0.1 * 9 * 10 / 9))
    norm.eval()
    x = frames(2, 10)
    expected = (x - norm.running_mean) / (norm.running_variance + 1e-5).sqrt() * norm.weight + norm.bias
    torch.testing.assert_close(norm(x, torch.ones(2, 10, 1)), expected, atol=1e-5, rtol=1e-5)
    assert not taken_sums(norm, CPU).any()
    before = norm.running_mean.clone()
    torch.testing.assert_close(norm(x[:1], real([3], 10)), expected[:1], atol=1e-5, rtol=1e-5)
    assert torch.equal(norm.running_mean, before)


def test_a_micro_batch_without_frames_or_variance_gives_no_nonsense() -> None:
    norm = MaskedBatchNorm(CHANNELS)
    assert norm(frames(1, 4) * 0, torch.zeros(1, 4, 1)).isfinite().all()
    update_running(norm, taken_sums(norm, CPU))
    assert torch.equal(norm.running_variance, torch.ones(CHANNELS))
    constant = norm(torch.full((1, 4, CHANNELS), 7.0), torch.ones(1, 4, 1))
    assert constant.abs().max() < 1e-3


def test_all_norms_of_a_model_share_one_vector_in_the_models_order() -> None:
    model = nn.ModuleList([MaskedBatchNorm(2), nn.Linear(3, 3), nn.Sequential(MaskedBatchNorm(3))])
    norms = list(batch_norms(model))
    assert [norm.weight.numel() for norm in norms] == [2, 3]
    for number, norm in enumerate(norms, start=1):
        norm(torch.full((1, 10, norm.weight.numel()), float(number)), torch.ones(1, 10, 1))
    sums = taken_sums(model, CPU)
    assert sums.tolist() == [10, 10, 10, 10, 10, 10, 20, 20, 20, 40, 40, 40]
    update_running(model, sums)
    assert torch.allclose(norms[0].running_mean, torch.full((2,), 0.1))
    assert torch.allclose(norms[1].running_mean, torch.full((3,), 0.2))
    assert taken_sums(nn.Linear(2, 2), CPU).numel() == 0
    update_running(nn.Linear(2, 2), torch.zeros(0))
