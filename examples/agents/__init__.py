"""Agents that do the steps of workflows in sessions of their own."""
