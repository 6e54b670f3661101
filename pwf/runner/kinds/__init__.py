"""One file for each kind of node: what executing it means.

Knows one step. Knows neither the graph nor what follows.
"""
