"""Fuzzing: properties of everything that reads what others wrote, with Hypothesis. `make fuzz` does more."""
