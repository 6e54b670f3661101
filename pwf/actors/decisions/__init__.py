"""What people are asked: the deadlines of their questions.

Knows the store. Knows nothing of runners: a question is asked and answered without a process.
"""
