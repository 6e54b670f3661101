"""Kill storms: thousands of runs with counting effects, and SIGKILL at random instants of everything."""
