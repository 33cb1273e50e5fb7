"""Read the machine and the environment; decide nothing."""
