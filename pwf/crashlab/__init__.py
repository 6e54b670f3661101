"""The crash lab: kills a workflow's runs at every boundary, in a scratch home, and says what that would have cost."""
