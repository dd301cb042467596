"""Solving: initialisations, solvers, the loop that runs them, checkpoints and streams."""
