"""Bags: what is known of instances and their groups. Plain numpy."""
