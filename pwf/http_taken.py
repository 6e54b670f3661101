"""Whether a request over HTTP was taken: which failures say that it was not; a redirect is not followed."""

from __future__ import annotations

import socket
import ssl
import urllib.request
from typing import IO, Any

UNREACHED = (ConnectionRefusedError, socket.gaierror, ssl.SSLCertVerificationError)  # before a byte was sent
#: 408 and 425 may have been processed all the same; 409 says of some servers that the first one is still in work.
UNDECIDED = frozenset({408, 409, 425})


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect would send the request again without its body, or a secret to somebody else."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> None:
        return None


opener = urllib.request.build_opener(_NoRedirects)
