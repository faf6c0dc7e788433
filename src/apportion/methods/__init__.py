"""Methods: how a network learns from proportions, one file per method."""
