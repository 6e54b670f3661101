"""`pwf web`: the answer pages, and links to sign in to them."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pwf.cli import exits
from pwf.cli.commands import Commands, client
from pwf.cli.out import Out, UsageError
from pwf.errors import extra_missing

if TYPE_CHECKING:
    from pwf.client.sync import SyncClient


def add(commands: Commands) -> None:
    parser = commands.add(
        "web",
        web,
        "serve pages on which people read and answer what runs ask",
        example="pwf web                   # serves until Ctrl-C; prints a link to sign in\n"
        "pwf web --link            # another link, for one more browser\npwf web --sign-out",
        more="It listens on 127.0.0.1:7930, unless the section [web] of the configuration says otherwise. With\n"
        "serve = true there the daemon keeps it running. A browser signs in by a link, which works once and for ten\n"
        "minutes. Links for others need public_url there (docs/web.md).",
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--link", action="store_true", help="print a link to sign in, and exit")
    what.add_argument("--sign-out", action="store_true", help="sign all browsers out, and exit")
    what.add_argument("--supervised", action="store_true", help=argparse.SUPPRESS)


def web(options: argparse.Namespace, out: Out) -> int:
    if options.link:
        with client() as daemon:
            _print_link(daemon, out)
            if not _is_served(daemon.places.config):
                out.note("no server answers there:  pwf web")
        return exits.OK
    if options.sign_out:
        return _sign_out(out)
    if out.as_json:
        raise UsageError("pwf web prints no JSON while it serves", hint="pwf web --link --json")
    return _serve(options.supervised, out)


def _is_served(config: Path) -> bool:
    """Whether something listens where the pages are to be."""
    import socket

    from pwf.config import load_config

    web = load_config(config).web
    try:
        socket.create_connection((web.host, web.port), timeout=1).close()
    except OSError:
        return False
    return True


def _serve(supervised: bool, out: Out) -> int:
    from pwf.config import load_config
    from pwf.places import places

    try:
        from pwf.web.serve import serve
    except ModuleNotFoundError as missing:
        raise extra_missing("pwf web", str(missing.name), "web") from missing
    at = places()
    config = load_config(at.config).web

    def serving() -> None:
        out.note(f"answer pages: {config.url('/')}  (Ctrl-C ends them)")
        with client() as daemon:
            _print_link(daemon, out)

    def ready() -> None:
        sys.stdout.write("ready\n")
        sys.stdout.flush()

    if supervised:
        serve(at, config, autostart=False, serving=ready, until_stdin_ends=True)
    else:
        serve(at, config, autostart=None, serving=serving)
    return exits.OK


def _print_link(daemon: SyncClient, out: Out) -> None:
    """The token is made here: the daemon gets its hash alone."""
    from pwf.config import load_config
    from pwf.protocol.web import InvitePayload, hash_of, new_token

    token = new_token()
    made = daemon.call("web.invite", InvitePayload(token_hash=hash_of(token)))
    url = load_config(daemon.places.config).web.url(f"/sign-in/{token}")
    if out.as_json:
        out.emit({"url": url, "expires_ms": made.expires_ms})
    else:
        out.note("sign in with this link, once, within ten minutes:")
        out.print(url)


def _sign_out(out: Out) -> int:
    from pwf.protocol.web import LeavePayload

    with client() as daemon:
        left = daemon.call("web.leave", LeavePayload())
    if out.as_json:
        out.emit(left)
    else:
        out.print("all browsers are signed out, and no link to sign in works any more")
    return exits.OK
