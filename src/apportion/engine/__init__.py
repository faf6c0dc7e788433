"""Steps on a device: batches, feeds, captured steps."""
