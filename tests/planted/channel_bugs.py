"""The bugs of channels: what is told twice, or never; outcomes that nobody knows; answers that must not count."""

from tests.planted.bug import Bug

ROWS = "pwf/store/channel_rows.py"
MESSAGES = "pwf/store/channel_messages.py"
ANSWERS = "pwf/store/channel_answers.py"
STORE = ("store/test_channels.py",)
BY_NAME = ("store/test_channels_by_name.py",)
ADAPTERS = ("channels",)

CHANNEL_BUGS = (
    Bug(
        "channels",
        "what an adapter was sending when it died is not ambiguous",
        ROWS,
        '    tx.run(Q.new_epoch, {"channel_no": channel_no})\n    lose_sends(tx, channel_no)',
        '    tx.run(Q.new_epoch, {"channel_no": channel_no})',
        STORE,
    ),
    Bug(
        "channels",
        "a stale adapter settles",
        ROWS,
        'if channel.generation != epoch or channel.state == "off":',
        'if channel.state == "off":',
        STORE,
    ),
    Bug(
        "channels",
        "a word on an earlier attempt settles the later one",
        MESSAGES,
        "row is None or row[0] != command.channel_no or row[3] != said.attempt",
        "row is None or row[0] != command.channel_no",
        STORE,
    ),
    Bug(
        "channels",
        "an unknown outcome counts as a refusal",
        MESSAGES,
        'elif said.outcome == "unknown":',
        'elif said.outcome == "nothing":',
        STORE,
    ),
    Bug(
        "channels",
        "what is settled while it is sent stays open on the phone",
        MESSAGES,
        "    if is_open(tx, request_id):\n        move(",
        "    if True:\n        move(",
        STORE,
    ),
    Bug(
        "channels",
        "a token is good in any channel",
        "pwf/store/channel_answers.sql",
        "AND m.channel_no = :channel_no",
        "AND :channel_no = :channel_no",
        STORE,
    ),
    Bug(
        "channels",
        "answers count through channels that the audience does not name",
        "pwf/store/decisions.py",
        "    if command.channel not in counting:",
        "    if False:",
        STORE,
    ),
    Bug(
        "channels",
        "tokens of an earlier home are good",
        "pwf/store/channel_kind.py",
        '        tx.run(Q.void_tokens, {"channel_no": number})\n',
        "",
        STORE,
    ),
    Bug(
        "channels",
        "a channel that is added shows nothing of what is open",
        "pwf/actors/channels/channel_supervisor.py",
        "        while missing is not None:",
        "        while False:",
        ("actors/test_channels.py",),
    ),
    Bug(
        "channels",
        "an update is read for good before its answer is stored",
        "pwf/channels/telegram.py",
        "            self._take(update, self.cursor(offset))\n",
        "            self.port.answer(cursor=self.cursor(offset))\n"
        "            self._take(update, self.cursor(offset))\n",
        ADAPTERS,
    ),
    Bug(
        "channels",
        "a lost answer of a service is a refusal",
        "pwf/channels/http.py",
        "    except Unclear as error:\n        return unknown(str(error))",
        "    except Unclear as error:\n        return refused(str(error))",
        ADAPTERS,
    ),
    Bug(
        "channels",
        "a signed post is taken twice",
        "pwf/channels/webhook.py",
        "        self._seen[signed] = now\n",
        "",
        ADAPTERS,
    ),
    Bug(
        "channels",
        "a form is shown for an audience that does not name its channel",
        MESSAGES,
        "        return None if channel.kind in BY_NAME else now_ms",
        "        return now_ms",
        BY_NAME,
    ),
    Bug(
        "channels",
        "what went with the process of a channel is not shown anew",
        MESSAGES,
        "        if channel.kind in BY_NAME:",
        "        if False:",
        BY_NAME,
    ),
    Bug(
        "channels",
        "a host that the configuration does not name is asked",
        "pwf/channels/hosts.py",
        " and hello.host in self.settings.hosts",
        "",
        ADAPTERS,
    ),
    Bug(
        "channels",
        "a host without the channel's token is asked",
        "pwf/channels/hosts.py",
        "hmac.compare_digest(hello.token.encode(), self._token) and ",
        "",
        ADAPTERS,
    ),
    Bug(
        "channels",
        "who declines a form has decided",
        "pwf/mcp/forms.py",
        ' and result.action == "accept"',
        "",
        ("mcp/test_forms.py",),
    ),
)
