"""How good an answer is: diagnosis, uniqueness, the number of components, scores and plots."""
