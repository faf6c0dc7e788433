"""The cells of a paper's tables: which, how they are run, and how they are rendered."""
