"""A report of run folders: one HTML file that needs no network, no data and no training."""
