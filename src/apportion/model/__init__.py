"""Trained models: one file format, one reader."""
