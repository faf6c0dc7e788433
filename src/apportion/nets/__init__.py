"""Networks that carry their normalisation, and augmentation."""
