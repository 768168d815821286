"""Many runs at once: the paper's grid, and what starts its runs here or on a cluster."""
