"""Data on their way into bags: benchmarks as arrays, and the protocols that make bags of them."""
