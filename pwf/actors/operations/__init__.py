"""What clients may ask for: one file for each family of operations, and the table that finds the handler.

Knows every handle that an operation needs. Holds no state, and knows no connection.
"""
