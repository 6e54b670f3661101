"""How long the texts and lists of a request may be: what a client sends decides how long the daemon works on it."""

from __future__ import annotations

from typing import Annotated

import msgspec

from pwf.ids import KEY_LENGTH_MAX

#: What a client calls something: the daemon keeps it as long as a connection or a request is open.
Name = Annotated[str, msgspec.Meta(max_length=KEY_LENGTH_MAX)]
#: As long as a path may be. What looks for a workflow goes up from folder to folder.
PathText = Annotated[str, msgspec.Meta(max_length=4_096)]
#: Words of a person, in characters. Each page of the history has them.
Words = Annotated[str, msgspec.Meta(max_length=4_096)]
#: Variables of an origin.
Variables = Annotated[dict[str, str], msgspec.Meta(max_length=1_024)]
#: Of a filter of a list.
Filter = msgspec.Meta(max_length=16)
