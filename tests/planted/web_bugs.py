"""The bugs of answer pages: links that decide too much or too often, and doors that are left open."""

from tests.planted.bug import Bug

TOKENS = "pwf/store/web_tokens.py"
GUARD = "pwf/web/guard.py"
STORE_TESTS = ("store/test_web_tokens.py",)
PAGE_TESTS = ("web",)

WEB_BUGS = (
    Bug(
        "web",
        "a link decides another decision",
        TOKENS,
        'if found.purpose == "browser" or found.request_id == request_id:',
        "if True:",
        STORE_TESTS,
    ),
    Bug(
        "web",
        "a link to sign in is not used up",
        TOKENS,
        '        tx.run(Q.drop_token, {"token_hash": link.token_hash})\n',
        "",
        STORE_TESTS,
    ),
    Bug(
        "web",
        "a sign-in is never over",
        TOKENS,
        "if expires_ms is None or expires_ms > tx.now.wall_ms:",
        "if True:",
        STORE_TESTS,
    ),
    Bug(
        "web",
        "tokens work in a copied home",
        "pwf/store/home.py",
        "    tx.run(Q.void_tokens)\n",
        "",
        STORE_TESTS,
    ),
    Bug(
        "web",
        "an answer by a link is recorded as that of who sent it on",
        "pwf/store/decisions.py",
        "command = msgspec.structs.replace(command, actor=token.made_by, channel=WEB)",
        "pass",
        STORE_TESTS,
    ),
    Bug(
        "web",
        "a form from another page is taken",
        GUARD,
        "if not self._is_ours(named):",
        "if False:",
        PAGE_TESTS,
    ),
    Bug(
        "web",
        "the pages are reached under any name",
        GUARD,
        "if len(hosts) != 1 or hosts[0].lower() not in self._hosts:",
        "if False:",
        PAGE_TESTS,
    ),
    Bug(
        "web",
        "a form needs no token of its own",
        "pwf/web/app.py",
        'if sent.get("form") != form_token:',
        "if False:",
        PAGE_TESTS,
    ),
    Bug(
        "web",
        "a link to a decision signs in",
        "pwf/web/app.py",
        'if (await self._known(token)).purpose != "browser":',
        "if (await self._known(token)).purpose is None:",
        PAGE_TESTS,
    ),
    Bug(
        "web",
        "what a run says is markup",
        "pwf/web/pages.py",
        "autoescape=True",
        "autoescape=False",
        PAGE_TESTS,
    ),
)
