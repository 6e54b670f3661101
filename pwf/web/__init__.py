"""The answer pages: what waits for a person, read and answered in a browser.

A process of its own (`pwf web`) and a client of the daemon, which alone decides who may do what: here is no state but
the connection. Promises: reading changes nothing; nobody reads or answers without a token that the daemon knows; no
page needs a script. `app` has the pages, `guard` what every request must pass, `serve` the server.
"""
