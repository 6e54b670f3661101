"""Two versions of pwf, measured in turn: what a change costs or gives, told from what the machine does meanwhile."""

PAIRS = 16  # enough for an interval, on an idle machine with two cores in some ten minutes
