"""Run folders: every file name, and what can be read without torch."""
