"""Files and folders that wake resources: what each is like, and the one process that notices changes."""
