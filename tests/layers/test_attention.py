from __future__ import annotations

import math

import pytest
import torch

from allears.layers.attention import Positions, SelfAttention, position_table, visible_keys

WIDTH, HEADS, FRAMES = 12, 2, 7
SIZE = WIDTH // HEADS


def attention(positions: Positions) -> SelfAttention:
    torch.manual_seed(0)
    made = SelfAttention(WIDTH, HEADS, positions)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.normal_(std=0.5)
    return made


def wave(distance: float, size: int) -> torch.Tensor:
    rates = [10_000.0 ** (-2 * index / size) for index in range(size // 2)]
    return torch.tensor([math.sin(distance * r) for r in rates] + [math.cos(distance * r) for r in rates])


def turned(x: torch.Tensor, place: int) -> torch.Tensor:
    result = torch.empty_like(x)
    for index in range(SIZE // 2):
        angle = place * 10_000.0 ** (-2 * index / SIZE)
        one, two = x[2 * index], x[2 * index + 1]
        result[2 * index] = one * math.cos(angle) - two * math.sin(angle)
        result[2 * index + 1] = one * math.sin(angle) + two * math.cos(angle)
    return result


@torch.no_grad()
@pytest.mark.parametrize("frames", [1, 2, FRAMES])
@pytest.mark.parametrize("positions", ["rotary", "relative"])
def test_scores_are_those_of_the_papers_written_out(positions: Positions, frames: int) -> None:
    """For each head, query and key by itself, the last frame being padding where there are three or more."""
    made = attention(positions)
    x = torch.randn(1, frames, WIDTH, generator=torch.Generator().manual_seed(1))
    real = frames - 1 if frames > 2 else frames
    table = position_table(positions, frames, WIDTH, HEADS, x.device)
    found = made(x, visible_keys(torch.tensor([real]), frames), table)
    q, k, v = made.input(x)[0].view(frames, 3, HEADS, SIZE).unbind(1)
    heard = torch.zeros(frames, HEADS, SIZE)
    for head in range(HEADS):
        part = slice(head * SIZE, (head + 1) * SIZE)
        for i in range(frames):
            scores = torch.empty(real)
            for j in range(real):
                if made.distance is None:
                    scores[j] = turned(q[i, head], i) @ turned(k[j, head], j)
                else:
                    between = made.distance(wave(j - i, WIDTH))[part]
                    scores[j] = (q[i, head] + made.content_bias[part]) @ k[j, head]
                    scores[j] += (q[i, head] + made.distance_bias[part]) @ between
            heard[i, head] = (scores / SIZE**0.5).softmax(dim=0) @ v[:real, head]
    torch.testing.assert_close(found[0], made.output(heard.flatten(1)), atol=1e-5, rtol=1e-5)


def test_an_utterance_of_no_frames_sees_one() -> None:
    assert visible_keys(torch.tensor([0, 1, 3]), 4)[:, 0, 0].tolist() == [
        [True, False, False, False],
        [True, False, False, False],
        [True, True, True, False],
    ]
