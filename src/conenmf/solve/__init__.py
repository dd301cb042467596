"""Iterating: initialisations, solvers, the one loop that alternates them, and its checkpoints."""
