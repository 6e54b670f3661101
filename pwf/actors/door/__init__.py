"""The way in and out: the listener, one connection for each client, and subscriptions to views.

Knows frames and who sent them. What a request means is the operations' duty.
"""
