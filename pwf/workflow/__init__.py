"""What an author of workflows writes, checked: `pwf` offers its names to the outside."""
