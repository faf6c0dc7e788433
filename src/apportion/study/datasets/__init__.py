"""The benchmark datasets, read from their official files."""
