"""What makes the training loop fast and safe, out of its way."""
