from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from allears.layers.augment import draw_bands
from allears.layers.batch_norm import taken_sums, update_running
from allears.layers.features import FeatureSettings
from allears.loading.collate import collate
from allears.models.conformer import ConformerSettings
from allears.models.convolutional import ConvolutionalSettings
from allears.models.ctc import CtcModel, EncoderSettings, ModelSettings
from allears.text.tokenizer import ctc_frames
from allears.types import Example

if TYPE_CHECKING:
    from collections.abc import Sequence

VOCABULARY = 9
SETTINGS = ModelSettings(
    features=FeatureSettings(normalisation="utterance"),
    encoder=ConvolutionalSettings(width=16, blocks=2, kernel=7, dropout=0.0),
)
CONFORMER = ConformerSettings(width=16, blocks=2, heads=2, kernel=7, dropout=0.0)
LENGTHS = (16000, 9000, 12345, 4000, 16001, 7777)


def example(number: int, samples: int, tokens: int = 4) -> Example:
    draw = np.random.default_rng(number)
    return Example(
        number,
        draw.normal(0, 3000, samples).astype(np.int16),
        draw.integers(1, VOCABULARY, tokens).astype(np.int32),
        draw_bands(2, 0.3, draw),
        draw_bands(2, 0.1, draw),
    )


EXAMPLES = [example(number, samples, tokens=2 + number) for number, samples in enumerate(LENGTHS)]


def model(settings: ModelSettings = SETTINGS) -> CtcModel:
    """A model whose running statistics are those of some steps, so that they matter."""
    torch.manual_seed(0)
    made = settings.build(VOCABULARY)
    for _ in range(3):
        made(collate(EXAMPLES))
        update_running(made, taken_sums(made, torch.device("cpu")))
    return made.eval()


@pytest.mark.case("speechbrain #1582")
@pytest.mark.parametrize("encoder", [SETTINGS.encoder, CONFORMER], ids=lambda encoder: str(encoder.kind))
@pytest.mark.parametrize("normalisation", ["utterance", "utterance_scalar", "none"])
@pytest.mark.parametrize("kind", ["kaldi_fbank", "log_mel_400_160", "log_mel_1024_256"])
def test_an_utterance_is_heard_alike_alone_and_in_a_batch(
    kind: str, normalisation: str, encoder: EncoderSettings
) -> None:
    features = FeatureSettings.model_validate({"kind": kind, "normalisation": normalisation})
    heard = model(SETTINGS.model_copy(update={"features": features, "encoder": encoder}))
    with torch.no_grad():
        together, lengths = heard.log_probabilities(collate(EXAMPLES))
        for row, one in enumerate(EXAMPLES):
            alone, length = heard.log_probabilities(collate([one]))
            assert lengths[row] == length[0] == alone.shape[1]
            torch.testing.assert_close(together[row, : length[0]], alone[0], atol=1e-4, rtol=0)
    assert together.dtype == torch.float32
    torch.testing.assert_close(together.exp().sum(dim=2), torch.ones(together.shape[:2]))


@pytest.mark.parametrize("kind", ["kaldi_fbank", "log_mel_400_160", "log_mel_1024_256"])
def test_output_frames_are_those_that_come_out(kind: str) -> None:
    features = FeatureSettings.model_validate({"kind": kind, "normalisation": "utterance"})
    settings = SETTINGS.model_copy(update={"features": features})
    heard = model(settings)
    samples = np.array([*range(0, 2001, 7), 399, 400, 401, 559, 560, 719, 720, 879, 880, 1039, 1040, 1200, 1999, 48123])
    wanted = settings.output_frames(samples)
    assert wanted.dtype == np.int64
    with torch.no_grad():
        for some in np.array_split(np.arange(len(samples)), 20):
            batch = collate([example(0, int(samples[place])) for place in some])
            assert heard.log_probabilities(batch)[1].tolist() == wanted[some].tolist()


def test_the_loss_is_a_sum_over_utterances_with_the_number_of_tokens() -> None:
    heard = model()
    with torch.no_grad():
        whole = heard(collate(EXAMPLES))
        parts = [heard(collate([one])) for one in EXAMPLES]
    assert list(whole.sums) == list(whole.counts) == ["ctc"]
    assert whole.counts["ctc"] == sum(len(one.tokens) for one in EXAMPLES) == 27
    assert whole.sums["ctc"].item() == pytest.approx(sum(part.sums["ctc"].item() for part in parts), rel=1e-5)
    assert sum(int(part.counts["ctc"]) for part in parts) == 27


def test_the_loss_is_that_of_every_path_written_out() -> None:
    """One token in two frames: the token may stand in the first frame, the second, or both."""
    heard = model()
    one = example(3, 1200, tokens=1)
    batch = collate([one])
    with torch.no_grad():
        scores, lengths = heard.log_probabilities(batch)
        assert lengths.tolist() == [2]
        token, blank = scores[0, :, int(one.tokens[0])].exp(), scores[0, :, 0].exp()
        expected = -(token[0] * blank[1] + blank[0] * token[1] + token[0] * token[1]).log()
        assert heard(batch).sums["ctc"].item() == pytest.approx(expected.item(), rel=1e-4)


@pytest.mark.case("icefall #135")
@pytest.mark.parametrize("encoder", [SETTINGS.encoder, CONFORMER], ids=lambda encoder: str(encoder.kind))
@pytest.mark.parametrize("tokens", [[3], [3, 4, 5, 6, 7], [3, 3, 4, 4, 4]])
def test_what_is_kept_for_its_frames_is_what_ctc_can_align(tokens: list[int], encoder: EncoderSettings) -> None:
    settings = SETTINGS.model_copy(update={"encoder": encoder})
    heard, target = model(settings), np.array(tokens, dtype=np.int32)
    samples = np.arange(0, 12_000, 320)
    kept = settings.output_frames(samples) >= ctc_frames(target)
    with torch.no_grad():
        losses = [heard(collate([replace(example(0, int(length)), tokens=target)])).sums["ctc"] for length in samples]
    assert [loss.isfinite().item() for loss in losses] == kept.tolist()
    assert 0 < kept.sum() < len(kept)


@pytest.mark.case("guide B (asked.md #14)")
@pytest.mark.parametrize("normalisation", ["utterance", "utterance_scalar", "global", "none"])
def test_digital_silence_teaches_without_harm(normalisation: str) -> None:
    """Beside speech, by itself, and with statistics of nothing but silence: its gradient is that of any sound."""
    features = FeatureSettings.model_validate({"normalisation": normalisation})
    heard = SETTINGS.model_copy(update={"features": features}).build(VOCABULARY)
    heard.frontend.set_statistics(torch.full((80,), -15.9), torch.zeros(80))
    silent = replace(EXAMPLES[0], waveform=np.zeros(16000, dtype=np.int16))
    for batch in ([silent, EXAMPLES[1]], [silent]):
        found = gradient(heard, [batch])
        assert found.isfinite().all()
        assert found.norm() < 10 * gradient(heard, [[EXAMPLES[0], EXAMPLES[1]]]).norm()


def gradient(heard: CtcModel, groups: Sequence[Sequence[Example]]) -> torch.Tensor:
    heard.zero_grad()
    for group in groups:
        (heard(collate(group)).sums["ctc"] / 27).backward()
    return torch.cat([parameter.grad.flatten() for parameter in heard.parameters() if parameter.grad is not None])


@pytest.mark.parametrize("encoder", [SETTINGS.encoder, CONFORMER], ids=lambda encoder: str(encoder.kind))
def test_micro_batches_give_the_gradient_of_one_batch(encoder: EncoderSettings) -> None:
    heard = model(SETTINGS.model_copy(update={"encoder": encoder})).double()
    whole = gradient(heard, [EXAMPLES])
    assert whole.norm() > 0.1
    for groups in ([EXAMPLES[:3], EXAMPLES[3:]], [EXAMPLES[:1], EXAMPLES[1:2], EXAMPLES[2:]], [[e] for e in EXAMPLES]):
        assert ((gradient(heard, groups) - whole).norm() / whole.norm()).item() < 1e-6


def test_bands_are_hidden_in_training_only() -> None:
    hidden = model()
    open_ = model(SETTINGS.model_copy(update={"spec_augment": None}))
    batch = collate(EXAMPLES)
    with torch.no_grad():
        open_.load_state_dict(hidden.state_dict())
        assert torch.equal(hidden.log_probabilities(batch)[0], open_.log_probabilities(batch)[0])
        hidden.train()
        open_.train()
        assert not torch.equal(hidden.log_probabilities(batch)[0], open_.log_probabilities(batch)[0])


def test_autocast_leaves_the_scores_in_float32() -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        scores, _ = model().log_probabilities(collate(EXAMPLES))
    assert scores.dtype == torch.float32
    assert scores.isfinite().all()


def test_features_are_not_weights() -> None:
    assert not [name for name in model().state_dict() if name.startswith("frontend")]
