"""Labels under counts: the exact solver and the decisions of Algorithm 1. Plain numpy."""
