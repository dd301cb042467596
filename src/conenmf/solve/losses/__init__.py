"""Losses: what a fit minimises, one file each."""
