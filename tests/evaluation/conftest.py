"""A model that has learnt nothing, but says something."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from allears.layers.features import FeatureSettings
from allears.models.convolutional import ConvolutionalSettings
from allears.models.ctc import ModelSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from allears.models.ctc import CtcModel


def babbler(vocabulary: int) -> CtcModel:
    """A small model whose random output is loud enough to be no blank."""
    torch.manual_seed(1)
    encoder = ConvolutionalSettings(width=16, blocks=1, kernel=3)
    settings = ModelSettings(features=FeatureSettings(normalisation="utterance"), encoder=encoder)
    model = settings.build(vocabulary).eval()
    with torch.no_grad():
        model.output.weight.mul_(50)
    return model


@pytest.fixture(scope="session")
def babble() -> Callable[[int], CtcModel]:
    """See `babbler`."""
    return babbler
