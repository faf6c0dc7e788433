"""Reproductions of papers: cells of their tables, run and recorded; tables and figures of those."""
