"""The crash lab finds what is wrong with bad workflows, and nothing with good ones."""
