"""Run folders to one HTML file."""
