"""Building blocks of models: features, augmentation, normalisation, masks."""
