"""The paper: cones of samples, one rank-one factor each, and what can be proved about them."""
