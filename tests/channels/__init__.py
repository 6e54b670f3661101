"""The adapters of channels: one conformance suite, and what each has of its own."""
