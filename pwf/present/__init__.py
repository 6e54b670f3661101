"""What people see of a view, wherever they see it: texts, trees and drawings.

Owns: wording, marks and shapes. Promises: pure functions from views, graphs and the time to safe text or SVG. Knows
views and graphs alone: no terminal, no daemon, no client.
"""
