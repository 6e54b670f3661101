"""Ready-made effects, each against the real thing."""
