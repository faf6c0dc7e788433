"""Bags: groups of instances, and what is known of them. Plain numpy."""
