"""Data from files: tables, images and signals."""
