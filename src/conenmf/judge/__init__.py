"""How good an answer is: diagnosis, the number of components, scores and plots."""
