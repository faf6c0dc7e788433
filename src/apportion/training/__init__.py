"""Training: the outer loop of Algorithm 1, its folder, and its record."""
