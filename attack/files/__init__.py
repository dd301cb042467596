"""Mutated files of every format that can be read, one module for each family of formats."""
