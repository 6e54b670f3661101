"""How deep a message from outside may be nested: a bound of our own, the same under every Python.

What Python's decoders take before their RecursionError differs: nearly 1,000 levels in 3.11, 1,500 in 3.12, 10,000
in 3.13, and less where the stack is already deep. Data that one process takes in must be such that every reader of
it can take it, and walk it in Python code.
"""

from __future__ import annotations

import re
from itertools import accumulate

#: Far more than a message around a value of `pwf.values.DEPTH_MAX` has: such values are refused with their path.
NESTING_MAX = 500

_SHORTEST_TOO_DEEP = 2 * (NESTING_MAX + 1)
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_NO_BRACKET = bytes(set(range(256)) - set(b"[]{}"))
_STEP = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}


def is_too_deep(text: bytes) -> bool:
    """Whether JSON text is nested more than `NESTING_MAX` deep. Text that is no JSON may be either.

    Nearly all messages are short, or have few brackets, and cost nothing.
    """
    if len(text) < _SHORTEST_TOO_DEEP or text.count(b"[") + text.count(b"{") <= NESTING_MAX:
        return False
    brackets = _STRING.sub(b"", text).translate(None, _NO_BRACKET)
    return max(accumulate(map(_STEP.__getitem__, brackets)), default=0) > NESTING_MAX
