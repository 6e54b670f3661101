"""Attacks on a real daemon, its home and its clients, as somebody on the same machine would try them."""
