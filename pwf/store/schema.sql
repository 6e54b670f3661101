-- The canonical schema, and until the first release the only text of it: migration 1 executes this file.
-- Values (input, output, prompt, …) stand inline up to 4 KiB, with the checksum of their bytes, else by digest in
-- `contents`.
-- Times: *_wall_ms since 1970; *_elapsed_ms and *_awake_ms since boot, meaningful under the row's boot id only.

CREATE TABLE meta(
  key TEXT PRIMARY KEY,
  value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Every row that has a revision and a lease. The fence is one UPDATE on this table.
-- Ids are random, so what belongs to an entity is keyed by its number: what lives at the same time then shares pages,
-- which is what a write costs.
CREATE TABLE entities(
  entity_no INTEGER PRIMARY KEY,                  -- counts up over every kind; 0: the daemon
  kind TEXT NOT NULL,                             -- see pwf/store/entity_kinds.py
  name TEXT NOT NULL,                             -- what it is known by within its kind: a run's id
  revision INTEGER NOT NULL CHECK (revision >= 1),
  generation INTEGER NOT NULL DEFAULT 0 CHECK (generation >= 0),
  lease_owner TEXT,                               -- 'daemon:<epoch>'
  lease_token TEXT,
  lease_boot_id TEXT,
  lease_until_awake_ms INTEGER,
  CHECK ((lease_owner IS NULL) = (lease_token IS NULL)),
  CHECK ((lease_owner IS NULL) = (lease_boot_id IS NULL)),
  CHECK ((lease_owner IS NULL) = (lease_until_awake_ms IS NULL))
) STRICT;
CREATE INDEX entities_leased ON entities(lease_owner) WHERE lease_owner IS NOT NULL;

-- The append-only history: one event per revision.
CREATE TABLE events(
  entity_no INTEGER NOT NULL,
  revision INTEGER NOT NULL,
  kind TEXT NOT NULL,
  actor TEXT NOT NULL,                            -- 'runner', 'daemon', 'client:<who>', 'run:<id>' (a step's word), 'timer'
  generation INTEGER NOT NULL,
  at_wall_ms INTEGER NOT NULL,
  payload BLOB NOT NULL,
  PRIMARY KEY (entity_no, revision)
) STRICT, WITHOUT ROWID;

-- Larger values, by SHA-256 of their bytes; verified when the last chunk arrives.
CREATE TABLE contents(
  digest TEXT PRIMARY KEY CHECK (length(digest) = 64),
  size INTEGER NOT NULL,
  complete INTEGER NOT NULL CHECK (complete IN (0, 1)),
  created_wall_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE content_chunks(
  digest TEXT NOT NULL REFERENCES contents(digest) ON DELETE CASCADE,
  chunk INTEGER NOT NULL,
  data BLOB NOT NULL,
  crc32 INTEGER NOT NULL,                         -- of data: each chunk is verified when it is read
  UNIQUE (digest, chunk)
) STRICT;

-- An upload is held for its entity and generation until a transition names the digest.
CREATE TABLE content_holds(
  digest TEXT NOT NULL REFERENCES contents(digest) ON DELETE CASCADE,
  entity_no INTEGER NOT NULL,
  generation INTEGER NOT NULL,
  held_wall_ms INTEGER NOT NULL DEFAULT 0,        -- of what clients sent, entity 0's: since when
  sent INTEGER NOT NULL DEFAULT 0,                -- and how many of its pieces, in order
  PRIMARY KEY (digest, entity_no, generation)
) STRICT, WITHOUT ROWID;
CREATE INDEX content_holds_by_entity ON content_holds(entity_no);

-- Receipts of state-changing client commands, committed with the command.
CREATE TABLE receipts(
  receipt_no INTEGER PRIMARY KEY,                 -- so that rows are added at one end, not where the key belongs
  scope_key TEXT NOT NULL UNIQUE,
  operation TEXT NOT NULL,
  payload_digest TEXT NOT NULL,
  outcome TEXT NOT NULL,
  response BLOB NOT NULL,
  run_id TEXT,
  created_wall_ms INTEGER NOT NULL
) STRICT;
CREATE INDEX receipts_by_age ON receipts(created_wall_ms);

-- What a run executes: graph and sources, once per digest.
CREATE TABLE definitions(
  definition_id TEXT PRIMARY KEY,
  workflow TEXT NOT NULL,
  root TEXT NOT NULL,
  path TEXT NOT NULL,
  graph BLOB NOT NULL,
  packages BLOB NOT NULL,
  warnings BLOB NOT NULL,
  created_wall_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE definition_sources(
  definition_id TEXT NOT NULL REFERENCES definitions(definition_id) ON DELETE CASCADE,
  path TEXT NOT NULL,
  kind TEXT NOT NULL CHECK (kind IN ('root', 'included', 'module', 'data')),
  module TEXT NOT NULL,
  digest TEXT NOT NULL REFERENCES contents(digest),
  size INTEGER NOT NULL,
  PRIMARY KEY (definition_id, path, kind)
) STRICT, WITHOUT ROWID;
CREATE INDEX definition_sources_by_digest ON definition_sources(digest);

-- Root, interpreter, versions and allow-listed variables; shared by the runs that have the same.
CREATE TABLE environments(
  environment_id TEXT PRIMARY KEY,
  root TEXT NOT NULL,                             -- of the body: the project
  body BLOB NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX environments_by_root ON environments(root);

-- Sessions of agents: each an entity, whose generation is the session's epoch. It has no lease: an attach takes it over.
CREATE TABLE sessions(
  session_no INTEGER PRIMARY KEY REFERENCES entities(entity_no),
  session_id TEXT NOT NULL UNIQUE,                -- the name of its entity
  client TEXT NOT NULL,                           -- what attached last, for people
  connected INTEGER NOT NULL CHECK (connected IN (0, 1)),
  reported INTEGER NOT NULL DEFAULT 0 CHECK (reported IN (0, 1)),  -- since it was attached
  idle INTEGER NOT NULL DEFAULT 0 CHECK (idle IN (0, 1)),          -- as it said last
  cleared_no INTEGER,                             -- the ended run that it has dismissed from its view
  created_wall_ms INTEGER NOT NULL,
  seen_wall_ms INTEGER NOT NULL,                  -- attached, detached or heard of
  CHECK (reported <= connected),
  CHECK (idle <= reported)
) STRICT;
CREATE INDEX sessions_by_seen ON sessions(seen_wall_ms);
CREATE INDEX sessions_connected ON sessions(session_no) WHERE connected = 1;

CREATE TABLE runs(
  run_no INTEGER PRIMARY KEY REFERENCES entities(entity_no), -- the number of its entity: the order of creation
  run_id TEXT NOT NULL UNIQUE,
  workflow TEXT NOT NULL,
  definition_id TEXT NOT NULL REFERENCES definitions(definition_id),
  environment_id TEXT NOT NULL REFERENCES environments(environment_id),
  status TEXT NOT NULL CHECK (status IN
    ('queued', 'running', 'waiting', 'held', 'completed', 'failed', 'timed_out', 'cancelled')),
  hold TEXT CHECK (hold IN ('paused', 'source_changed', 'environment_missing', 'no_progress', 'effect_ambiguous',
    'process_unreaped', 'load_failed', 'restored', 'broken', 'budget')),
  hold_detail TEXT,                               -- why; of a queued run: what it waits for until it is due
  pause_requested INTEGER NOT NULL DEFAULT 0 CHECK (pause_requested IN (0, 1)),
  title TEXT,
  node TEXT NOT NULL,                             -- the position; of an ended run, where it ended
  visit INTEGER NOT NULL,
  visits BLOB NOT NULL,                           -- {"node": entries so far}
  entries BLOB NOT NULL DEFAULT (x'7b7d'),        -- {"mount": {"node": entries before the mount's present entry}}
  steps INTEGER NOT NULL DEFAULT 1,               -- visits so far, against max_steps
  attempts INTEGER NOT NULL DEFAULT 0,            -- number of the newest attempt
  tries INTEGER NOT NULL DEFAULT 0,               -- tries of the present visit, interrupted ones included
  failures INTEGER NOT NULL DEFAULT 0,            -- failed tries of the present visit, against retry.times
  crashes INTEGER NOT NULL DEFAULT 0,             -- runner ends without progress, in a row
  daemon_deaths INTEGER NOT NULL DEFAULT 0,       -- of daemons, by themselves, while it ran; in a row, within a boot
  observe TEXT CHECK (observe IN ('run', 'failed', 'timed_out')),  -- the effect's outcome is unknown: observe first,
                                                  -- and if it did not happen, run it or report this outcome
  seq INTEGER NOT NULL DEFAULT 0,                 -- highest message of the present runner
  priority INTEGER NOT NULL DEFAULT 0,
  due_wall_ms INTEGER,                            -- kept through a pause
  due_elapsed_ms INTEGER,                         -- set for relative waits
  due_boot_id TEXT,
  input BLOB, input_crc32 INTEGER, input_digest TEXT REFERENCES contents(digest),
  output BLOB, output_crc32 INTEGER, output_digest TEXT REFERENCES contents(digest),
  error BLOB,
  reason TEXT,
  restarted_from TEXT,                            -- the ended run that this one restarts
  restart_root TEXT,                              -- the first run of the chain of restarts
  restart_no INTEGER NOT NULL DEFAULT 0,          -- 0: no restart
  called_by INTEGER REFERENCES entities(entity_no), -- the managed resource whose child it is; a restart stays one while it lives
  call_key TEXT,                                  -- that its manager named it by
  call_fingerprint TEXT,                          -- of what its manager asked for
  forked_from TEXT,                               -- the run whose outputs this one took over, up to a node
  fork_node TEXT, fork_visit INTEGER,             -- where it goes on from there
  tree_root TEXT,                                 -- the first run of its lineage: restarts and forks go together
  max_steps INTEGER CHECK (max_steps >= 1),       -- in place of the workflow's
  agent TEXT,                                     -- that does the steps of agents; NULL: they wait for a submission
  session_no INTEGER REFERENCES sessions(session_no), -- whose model does them
  outside_name TEXT,                              -- leads the keys of its effects outside; NULL: the run's id does
  created_wall_ms INTEGER NOT NULL,
  started_wall_ms INTEGER,
  ended_wall_ms INTEGER,
  CHECK ((status = 'held') <= (hold IS NOT NULL)),
  CHECK (hold IS NULL OR status IN ('held', 'waiting')),
  CHECK ((restarted_from IS NULL) = (restart_root IS NULL)),
  CHECK ((restarted_from IS NULL) = (restart_no = 0)),
  CHECK ((forked_from IS NULL) = (fork_node IS NULL)),
  CHECK ((forked_from IS NULL) = (fork_visit IS NULL)),
  CHECK (forked_from IS NULL OR restarted_from IS NULL),
  CHECK ((called_by IS NULL) = (call_key IS NULL)),
  CHECK ((called_by IS NULL) = (call_fingerprint IS NULL)),
  CHECK ((coalesce(forked_from, restarted_from) IS NULL) = (tree_root IS NULL)),
  CHECK ((status IN ('completed', 'failed', 'timed_out', 'cancelled')) = (ended_wall_ms IS NOT NULL))
) STRICT;
CREATE INDEX runs_by_status ON runs(status, run_no);
CREATE INDEX runs_by_workflow ON runs(workflow, run_no);
CREATE INDEX runs_held ON runs(hold, run_no) WHERE hold IS NOT NULL;
CREATE INDEX runs_suspected ON runs(daemon_deaths) WHERE daemon_deaths > 0;
CREATE UNIQUE INDEX one_restart_per_run ON runs(restarted_from) WHERE restarted_from IS NOT NULL;
CREATE INDEX runs_by_end ON runs(ended_wall_ms) WHERE ended_wall_ms IS NOT NULL;
CREATE INDEX runs_by_restart_root ON runs(restart_root, restart_no) WHERE restart_root IS NOT NULL;
CREATE UNIQUE INDEX one_child_per_key ON runs(called_by, call_key) WHERE called_by IS NOT NULL AND restarted_from IS NULL;
CREATE INDEX runs_by_caller ON runs(called_by, run_no) WHERE called_by IS NOT NULL;
CREATE INDEX runs_by_fork ON runs(forked_from, run_no) WHERE forked_from IS NOT NULL;
CREATE INDEX runs_by_tree ON runs(tree_root) WHERE tree_root IS NOT NULL;
CREATE UNIQUE INDEX one_open_run_per_session ON runs(session_no) WHERE session_no IS NOT NULL AND ended_wall_ms IS NULL;
CREATE INDEX runs_by_session ON runs(session_no, run_no) WHERE session_no IS NOT NULL;
CREATE INDEX runs_by_definition ON runs(definition_id);
CREATE INDEX runs_by_environment ON runs(environment_id);
CREATE INDEX runs_by_input ON runs(input_digest) WHERE input_digest IS NOT NULL;
CREATE INDEX runs_by_output ON runs(output_digest) WHERE output_digest IS NOT NULL;

-- How many runs have each status: what `status` and lists show must not cost a scan.
CREATE TABLE run_counts(
  status TEXT PRIMARY KEY,
  runs INTEGER NOT NULL CHECK (runs >= 0)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER runs_counted_insert AFTER INSERT ON runs BEGIN
  INSERT INTO run_counts VALUES (new.status, 1) ON CONFLICT(status) DO UPDATE SET runs = runs + 1;
END;
CREATE TRIGGER runs_counted_update AFTER UPDATE OF status ON runs WHEN old.status <> new.status BEGIN
  UPDATE run_counts SET runs = runs - 1 WHERE status = old.status;
  INSERT INTO run_counts VALUES (new.status, 1) ON CONFLICT(status) DO UPDATE SET runs = runs + 1;
END;
CREATE TRIGGER runs_counted_delete AFTER DELETE ON runs BEGIN
  UPDATE run_counts SET runs = runs - 1 WHERE status = old.status;
END;

-- A row exists only while a run is due or live.
CREATE TABLE run_queue(
  run_no INTEGER PRIMARY KEY REFERENCES runs(run_no),
  state TEXT NOT NULL CHECK (state IN ('later', 'ready', 'live')),
  priority INTEGER NOT NULL,
  due_wall_ms INTEGER NOT NULL,
  due_elapsed_ms INTEGER,                         -- set for relative waits; then it decides
  due_boot_id TEXT,
  is_new INTEGER NOT NULL CHECK (is_new IN (0, 1))  -- never launched: what goes on comes before it
) STRICT;
CREATE INDEX run_queue_going_on ON run_queue(priority DESC, due_wall_ms) WHERE state = 'ready' AND is_new = 0;
CREATE INDEX run_queue_new ON run_queue(priority DESC, due_wall_ms) WHERE state = 'ready' AND is_new = 1;
CREATE INDEX run_queue_later_wall ON run_queue(is_new, due_wall_ms) WHERE state = 'later' AND due_elapsed_ms IS NULL;
CREATE INDEX run_queue_later_elapsed ON run_queue(due_elapsed_ms) WHERE state = 'later' AND due_elapsed_ms IS NOT NULL;

CREATE TABLE attempts(
  run_no INTEGER NOT NULL REFERENCES runs(run_no),
  attempt INTEGER NOT NULL CHECK (attempt >= 1),
  node TEXT NOT NULL,
  visit INTEGER NOT NULL,
  tries INTEGER NOT NULL,
  status TEXT NOT NULL CHECK (status IN
    ('active', 'completed', 'failed', 'timed_out', 'cancelled', 'interrupted', 'limited', 'unknown')),
  generation INTEGER NOT NULL,
  started_wall_ms INTEGER NOT NULL,
  ended_wall_ms INTEGER,
  active_ms INTEGER NOT NULL DEFAULT 0,
  output BLOB, output_crc32 INTEGER, output_digest TEXT REFERENCES contents(digest),
  error BLOB,
  seq INTEGER,                                    -- the runner's message that ended it, and the answer it got
  verdict TEXT,
  said INTEGER,                                   -- the checksum of that message: a repeat says the same
  printed INTEGER NOT NULL DEFAULT 0,             -- bytes that were kept of what it printed, in files of the home
  survivors BLOB,                                 -- processes that outlived it, and were ended: [{pid, command}]
  observed INTEGER NOT NULL DEFAULT 0 CHECK (observed IN (0, 1)),  -- it observes what became of an earlier one's effect
  adopted INTEGER,                                -- the attempt of the run this was forked from; NULL: its own
  counted_from BLOB,                              -- of an include: visits below it before this entry; NULL: none, or no include
  notice TEXT CHECK (notice IN ('progress', 'final')),  -- its output is a text for people
  PRIMARY KEY (run_no, attempt),
  CHECK (notice IS NULL OR (status = 'completed' AND adopted IS NULL)),
  CHECK ((adopted IS NOT NULL) = (generation = 0)),
  CHECK ((status = 'active') = (ended_wall_ms IS NULL))
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX one_active_attempt ON attempts(run_no) WHERE status = 'active';
CREATE INDEX attempts_notices ON attempts(ended_wall_ms, run_no, attempt) WHERE notice IS NOT NULL;
CREATE INDEX attempts_by_output ON attempts(output_digest) WHERE output_digest IS NOT NULL;

-- What the agent of an attempt has reported, in sums. An attempt without an agent that reports has none.
CREATE TABLE agent_work(
  run_no INTEGER NOT NULL REFERENCES runs(run_no),
  attempt INTEGER NOT NULL,
  agent TEXT NOT NULL,
  conversation TEXT,                              -- what the next attempt continues, where this one was interrupted
  afresh TEXT,                                    -- why it is not the conversation that an earlier attempt had begun
  input_tokens INTEGER NOT NULL CHECK (input_tokens >= 0),
  output_tokens INTEGER NOT NULL CHECK (output_tokens >= 0),
  cost_micros INTEGER NOT NULL CHECK (cost_micros >= 0),  -- millionths of a dollar
  PRIMARY KEY (run_no, attempt)
) STRICT, WITHOUT ROWID;

-- What a person said that the agents of a run may use: at its start, and when it was held for that.
CREATE TABLE run_budgets(
  run_no INTEGER PRIMARY KEY REFERENCES runs(run_no),
  at_start BLOB,
  raised BLOB,
  over_day INTEGER NOT NULL DEFAULT 0 CHECK (over_day IN (0, 1))  -- the day's budget of its agent counts no more for it
) STRICT;

-- What all runs of an agent have used on a day, by the local time of the daemon.
CREATE TABLE agent_days(
  agent TEXT NOT NULL,
  day TEXT NOT NULL,
  tokens INTEGER NOT NULL,
  cost_micros INTEGER NOT NULL,
  active_ms INTEGER NOT NULL,
  steps INTEGER NOT NULL,
  PRIMARY KEY (agent, day)
) STRICT, WITHOUT ROWID;

-- Accounts of agents that have met a usage limit: nobody asks before it ends, and then one run does for all.
CREATE TABLE agent_limits(
  account TEXT PRIMARY KEY,
  until_wall_ms INTEGER NOT NULL,                 -- as it was said, or when it is tried
  refusals INTEGER NOT NULL CHECK (refusals >= 0), -- in a row, of those that said no time
  probe_no INTEGER,                               -- the run that tries whether it has ended
  probe_attempt INTEGER,                          -- by this attempt, and no longer
  CHECK ((probe_no IS NULL) = (probe_attempt IS NULL))
) STRICT, WITHOUT ROWID;

CREATE TABLE requests(
  request_id TEXT PRIMARY KEY,
  run_id TEXT NOT NULL REFERENCES runs(run_id),
  node TEXT NOT NULL,
  visit INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  kind TEXT NOT NULL CHECK (kind IN ('checkpoint', 'agent', 'assistant', 'decision')),
  status TEXT NOT NULL CHECK (status IN ('pending', 'settled', 'cancelled')),
  revision INTEGER NOT NULL DEFAULT 1 CHECK (revision >= 1),  -- raised when its run is resumed
  prompt BLOB, prompt_crc32 INTEGER, prompt_digest TEXT REFERENCES contents(digest),
  schema BLOB,
  answer BLOB, answer_crc32 INTEGER, answer_digest TEXT REFERENCES contents(digest),
  answered_by TEXT,
  default_answer BLOB, default_answer_crc32 INTEGER, -- the answer when none came in time; NULL: the attempt has timed out
  deadline_wall_ms INTEGER,                       -- NULL: it waits for ever, or its clock stands still
  deadline_elapsed_ms INTEGER,                    -- set within the boot that it was asked in; then it decides
  deadline_boot_id TEXT,
  left_ms INTEGER CHECK (left_ms >= 0),           -- of its time, while its run is held: the clock stands still
  reminders INTEGER NOT NULL DEFAULT 0,           -- of its session, which ended turns without a submission
  lost INTEGER NOT NULL DEFAULT 0,                -- turns about it in a row that were lost, with nothing heard of it
  updates INTEGER NOT NULL DEFAULT 0,             -- that its holder has said of it
  active_ms INTEGER NOT NULL DEFAULT 0,           -- that its session's model has worked on it, up to the last sample
  created_wall_ms INTEGER NOT NULL,
  settled_wall_ms INTEGER,
  CHECK ((status = 'pending') = (settled_wall_ms IS NULL)),
  CHECK ((deadline_elapsed_ms IS NULL) = (deadline_boot_id IS NULL)),
  CHECK ((deadline_elapsed_ms IS NOT NULL) <= (deadline_wall_ms IS NOT NULL)),
  CHECK ((left_ms IS NOT NULL) <= (deadline_wall_ms IS NULL))
) STRICT, WITHOUT ROWID;
CREATE INDEX requests_due_wall ON requests(deadline_wall_ms)
  WHERE status = 'pending' AND deadline_wall_ms IS NOT NULL AND deadline_elapsed_ms IS NULL;
CREATE INDEX requests_due_elapsed ON requests(deadline_elapsed_ms)
  WHERE status = 'pending' AND deadline_elapsed_ms IS NOT NULL;
CREATE UNIQUE INDEX one_open_request ON requests(run_id) WHERE status = 'pending';
CREATE INDEX requests_by_age ON requests(status, created_wall_ms);
CREATE INDEX requests_by_run ON requests(run_id, created_wall_ms);
CREATE INDEX requests_by_prompt ON requests(prompt_digest) WHERE prompt_digest IS NOT NULL;
CREATE INDEX requests_by_answer ON requests(answer_digest) WHERE answer_digest IS NOT NULL;

-- What was submitted for an agent, where the node's own `validate=` judges it: each an entity, for which an errand runs.
CREATE TABLE submissions(
  submission_no INTEGER PRIMARY KEY REFERENCES entities(entity_no),
  run_id TEXT NOT NULL REFERENCES runs(run_id),
  request_id TEXT NOT NULL REFERENCES requests(request_id),
  status TEXT NOT NULL CHECK (status IN ('validating', 'accepted', 'rejected')),
  value BLOB, value_crc32 INTEGER, value_digest TEXT REFERENCES contents(digest),
  submitted_by TEXT NOT NULL,
  reason TEXT,                                    -- why it was rejected
  errands INTEGER NOT NULL DEFAULT 0,             -- that were told to judge it
  created_wall_ms INTEGER NOT NULL,
  judged_wall_ms INTEGER,
  CHECK ((status = 'validating') = (judged_wall_ms IS NULL)),
  CHECK ((status = 'rejected') = (reason IS NOT NULL))
) STRICT;
CREATE UNIQUE INDEX one_validating ON submissions(request_id) WHERE status = 'validating';
CREATE UNIQUE INDEX one_accepted ON submissions(request_id) WHERE status = 'accepted';
CREATE INDEX submissions_by_request ON submissions(request_id, submission_no);
CREATE INDEX submissions_by_run ON submissions(run_id, submission_no);
CREATE INDEX submissions_by_age ON submissions(submission_no) WHERE status = 'validating';
CREATE INDEX submissions_by_value ON submissions(value_digest) WHERE value_digest IS NOT NULL;

-- What must reach a session. It is sent when the session was seen to have it.
CREATE TABLE messages(
  message_no INTEGER PRIMARY KEY,
  message_id TEXT NOT NULL UNIQUE,                -- of a step: request, its revision and the reason
  session_no INTEGER NOT NULL REFERENCES sessions(session_no),
  run_no INTEGER NOT NULL REFERENCES runs(run_no),
  kind TEXT NOT NULL CHECK (kind IN ('step', 'terminal', 'follow_up', 'notification', 'proposal')),
  request_id TEXT REFERENCES requests(request_id),
  request_revision INTEGER,
  reason TEXT CHECK (reason IN ('initial', 'resumed', 'rejected', 'lost', 'reminder')),
  why TEXT,                                       -- what a rejected submission is to correct; why a follow-up is dropped
  queued_by TEXT,                                 -- who queued a follow-up
  body BLOB, body_crc32 INTEGER, body_digest TEXT REFERENCES contents(digest), -- of a notification or a follow-up
  status TEXT NOT NULL CHECK (status IN ('pending', 'sent', 'cancelled')),
  is_over INTEGER NOT NULL CHECK (is_over IN (0, 1)), -- nothing more comes of it: its turn, if it starts one, is over
  created_wall_ms INTEGER NOT NULL,
  sent_wall_ms INTEGER,
  CHECK ((kind = 'step') = (reason IS NOT NULL)),
  CHECK ((kind IN ('step', 'proposal')) = (request_id IS NOT NULL)),
  CHECK ((kind = 'follow_up') = (queued_by IS NOT NULL)),
  CHECK ((request_id IS NULL) = (request_revision IS NULL)),
  CHECK ((status = 'pending') <= (is_over = 0 AND sent_wall_ms IS NULL)),
  CHECK ((status = 'sent') <= (sent_wall_ms IS NOT NULL))
) STRICT;
CREATE UNIQUE INDEX one_pending_message ON messages(request_id) WHERE status = 'pending' AND request_id IS NOT NULL;
CREATE UNIQUE INDEX one_terminal_message ON messages(run_no) WHERE kind = 'terminal';
CREATE INDEX messages_open ON messages(session_no, run_no, message_no) WHERE is_over = 0;
CREATE INDEX messages_by_run ON messages(run_no, message_no);
CREATE INDEX messages_by_request ON messages(request_id, request_revision) WHERE request_id IS NOT NULL;
CREATE INDEX messages_by_body ON messages(body_digest) WHERE body_digest IS NOT NULL;

-- Turns of models that sessions have reported, by ids of their own.
CREATE TABLE turns(
  session_no INTEGER NOT NULL REFERENCES sessions(session_no),
  turn_id TEXT NOT NULL,
  message_no INTEGER NOT NULL REFERENCES messages(message_no),
  status TEXT NOT NULL CHECK (status IN ('open', 'ended', 'aborted', 'lost')),
  started_wall_ms INTEGER NOT NULL,
  ended_wall_ms INTEGER,
  PRIMARY KEY (session_no, turn_id),
  CHECK ((status = 'open') = (ended_wall_ms IS NULL))
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX one_open_turn ON turns(session_no) WHERE status = 'open';
CREATE INDEX turns_by_message ON turns(message_no);

-- What a session has recorded of its conversation about a run, for replay: segments, each with entries by number. The oldest
-- entries of one that is full are gone.
CREATE TABLE segments(
  run_no INTEGER NOT NULL REFERENCES runs(run_no),
  segment TEXT NOT NULL,
  first_number INTEGER NOT NULL,                  -- the oldest entry that is kept
  next_number INTEGER NOT NULL,
  bytes INTEGER NOT NULL CHECK (bytes >= 0),      -- of those that are kept
  PRIMARY KEY (run_no, segment),
  CHECK (0 <= first_number AND first_number <= next_number)
) STRICT, WITHOUT ROWID;

CREATE TABLE session_entries(
  entry_no INTEGER PRIMARY KEY,                   -- the order in which they were recorded
  run_no INTEGER NOT NULL REFERENCES runs(run_no),
  segment TEXT NOT NULL,
  number INTEGER NOT NULL,
  kind TEXT NOT NULL,
  body BLOB NOT NULL, body_crc32 INTEGER NOT NULL,
  recorded_wall_ms INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX session_entries_by_number ON session_entries(run_no, segment, number);
CREATE INDEX session_entries_by_run ON session_entries(run_no, entry_no);

-- What the models of sessions work on now: a row only while a turn is open on a session that is connected.
CREATE TABLE active_intervals(
  request_id TEXT PRIMARY KEY REFERENCES requests(request_id),
  session_no INTEGER NOT NULL REFERENCES sessions(session_no),
  since_awake_ms INTEGER NOT NULL,                -- counted up to then, in the daemon's own boot
  due_awake_ms INTEGER                            -- when the limit of the step passes; NULL: it has none
) STRICT, WITHOUT ROWID;
CREATE INDEX active_due ON active_intervals(due_awake_ms) WHERE due_awake_ms IS NOT NULL;
CREATE INDEX active_of_session ON active_intervals(session_no);

-- What a person is asked to decide, bound by its digest; the presentation is the request's prompt. The subject is machine
-- data: no view, list or message has it.
CREATE TABLE decisions(
  request_id TEXT PRIMARY KEY REFERENCES requests(request_id),
  title TEXT NOT NULL,
  audience TEXT NOT NULL,
  subject BLOB, subject_crc32 INTEGER,
  choices BLOB NOT NULL,
  open_ms INTEGER,                                -- how long it is open; NULL: for ever
  digest TEXT NOT NULL CHECK (length(digest) = 64),
  earlier_id TEXT                                 -- what the same node of the run proposed before
) STRICT, WITHOUT ROWID;

-- Every answer to a decision, in order; one has won once its request is closed, and never changes.
CREATE TABLE answers(
  request_id TEXT NOT NULL REFERENCES decisions(request_id),
  answer_no INTEGER NOT NULL,
  provenance TEXT NOT NULL CHECK (provenance IN ('person', 'timeout', 'cancelled', 'expired')),
  who TEXT NOT NULL,
  channel TEXT NOT NULL,
  digest TEXT,                                    -- of what its giver has seen
  choice TEXT,
  text TEXT,
  won INTEGER NOT NULL CHECK (won IN (0, 1)),
  why_not TEXT,
  at_wall_ms INTEGER NOT NULL,
  PRIMARY KEY (request_id, answer_no),
  CHECK ((won = 0) = (why_not IS NOT NULL)),
  CHECK (won = 1 OR provenance = 'person'),
  CHECK ((provenance IN ('person', 'timeout')) = (choice IS NOT NULL))
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX one_winner_per_decision ON answers(request_id) WHERE won = 1;

-- What a person holds who answers on a page: a link to one decision, a link to sign in once, a browser that has. Only
-- hashes are here: nobody gets in with what stands in a backup.
CREATE TABLE web_tokens(
  token_hash TEXT PRIMARY KEY CHECK (length(token_hash) = 64),
  purpose TEXT NOT NULL CHECK (purpose IN ('answer', 'sign_in', 'browser')),
  request_id TEXT REFERENCES decisions(request_id),
  digest TEXT,                                    -- of what was proposed when the link was made
  made_by TEXT NOT NULL,
  made_wall_ms INTEGER NOT NULL,
  expires_wall_ms INTEGER,                        -- of a link to a decision NULL: that is over with its decision
  used_wall_ms INTEGER,                           -- when it has decided
  CHECK ((purpose = 'answer') = (request_id IS NOT NULL)),
  CHECK ((request_id IS NULL) = (digest IS NULL)),
  CHECK ((request_id IS NULL) = (expires_wall_ms IS NOT NULL)),
  CHECK (used_wall_ms IS NULL OR request_id IS NOT NULL)
) STRICT, WITHOUT ROWID;
CREATE INDEX web_tokens_of_decision ON web_tokens(request_id) WHERE request_id IS NOT NULL;
CREATE INDEX web_tokens_by_end ON web_tokens(expires_wall_ms) WHERE expires_wall_ms IS NOT NULL;
CREATE UNIQUE INDEX one_link_decides ON web_tokens(request_id) WHERE used_wall_ms IS NOT NULL;

-- The ledger of outside effects: reserved before, settled after. One row per visit that declares its effect, or one for each
-- part that the code names; a part alone has request, fingerprint and output of its own.
CREATE TABLE effects(
  entity_no INTEGER NOT NULL REFERENCES entities(entity_no),
  node TEXT NOT NULL,
  visit INTEGER NOT NULL,
  part TEXT NOT NULL DEFAULT '',
  type TEXT NOT NULL,
  mode TEXT NOT NULL CHECK (mode IN ('idempotent', 'manual')),
  observable INTEGER NOT NULL DEFAULT 0 CHECK (observable IN (0, 1)), -- of a part: the code that began it can observe it
  status TEXT NOT NULL CHECK (status IN
    ('applying', 'applied', 'rejected', 'failed', 'ambiguous', 'cancelled', 'abandoned')),
  generation INTEGER NOT NULL DEFAULT 0,          -- of its entity, that began it last
  attempts INTEGER NOT NULL,                      -- times it was begun
  request BLOB, request_crc32 INTEGER, request_digest TEXT REFERENCES contents(digest),
  fingerprint TEXT,                               -- SHA-256 of the request
  output BLOB, output_crc32 INTEGER, output_digest TEXT REFERENCES contents(digest),
  error BLOB,                                     -- of a part: why its last try failed, or left its outcome unknown
  ref TEXT,
  settled_by TEXT,                                -- who said what became of it; NULL: its entity's process did
  note TEXT,                                      -- what that person said of it
  asked_wall_ms INTEGER,                          -- of a managed resource's: when its manager asked for it last, to a day
  reserved_wall_ms INTEGER NOT NULL,
  settled_wall_ms INTEGER,
  PRIMARY KEY (entity_no, node, visit, part),     -- leads with the entity: what belongs to it lies together
  CHECK ((part = '') = (fingerprint IS NULL)),
  CHECK ((part = '') = (request IS NULL AND request_digest IS NULL)),
  CHECK (request_digest IS NULL OR request_digest = fingerprint),
  CHECK ((output IS NULL AND output_digest IS NULL) OR (part <> '' AND status = 'applied')),
  CHECK ((status IN ('applying', 'ambiguous')) = (settled_wall_ms IS NULL)),
  CHECK ((status = 'abandoned') <= (settled_by IS NOT NULL)),
  CHECK ((note IS NOT NULL) <= (settled_by IS NOT NULL))
) STRICT, WITHOUT ROWID;
CREATE INDEX effects_by_request ON effects(request_digest) WHERE request_digest IS NOT NULL;
CREATE INDEX effects_by_output ON effects(output_digest) WHERE output_digest IS NOT NULL;
CREATE INDEX effects_asked ON effects(asked_wall_ms) WHERE asked_wall_ms IS NOT NULL AND settled_wall_ms IS NOT NULL;
CREATE INDEX effects_by_time ON effects(reserved_wall_ms);
CREATE INDEX effects_unsettled ON effects(status, reserved_wall_ms) WHERE status IN ('applying', 'ambiguous');

-- Custody: the one process that works for an entity's generation; gone only when it is proved dead.
CREATE TABLE runners(
  entity_no INTEGER PRIMARY KEY REFERENCES entities(entity_no),
  generation INTEGER NOT NULL,
  epoch INTEGER NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('launching', 'live', 'ending')),
  pid INTEGER, start_tick INTEGER, boot_id TEXT, session INTEGER,
  created_wall_ms INTEGER NOT NULL,
  CHECK ((state = 'live') <= (pid IS NOT NULL))
) STRICT;
CREATE INDEX runners_by_epoch ON runners(epoch);

CREATE TABLE updates(
  run_id TEXT NOT NULL REFERENCES runs(run_id),
  kind TEXT NOT NULL,
  key TEXT NOT NULL,
  data BLOB NOT NULL,
  updated_wall_ms INTEGER NOT NULL,
  attempt INTEGER NOT NULL,                       -- which wrote it
  samples BLOB CHECK (samples IS NULL OR kind = 'progress'), -- of that attempt: JSON, [[wall ms, completed], …]
  PRIMARY KEY (run_id, kind, key)
) STRICT, WITHOUT ROWID;

-- Settings that differ from what the workflow declares. A run goes on from another one's with its change 0.
CREATE TABLE settings(
  run_no INTEGER NOT NULL REFERENCES runs(run_no),
  scope TEXT NOT NULL,                            -- the mount of an included workflow; empty: the run's own
  entry INTEGER NOT NULL,                         -- the visit of that mount whose settings they are
  change INTEGER NOT NULL CHECK (change >= 0),
  value BLOB NOT NULL CHECK (length(value) <= 262144),
  changed_wall_ms INTEGER NOT NULL,
  kept_node TEXT,                                 -- of a visit that had begun with an effect: those that it saw first
  kept_visit INTEGER,
  kept_change INTEGER,
  kept_value BLOB CHECK (length(kept_value) <= 262144),
  PRIMARY KEY (run_no, scope),
  CHECK ((scope = '') = (entry = 0)),
  CHECK ((kept_node IS NULL) = (kept_value IS NULL) AND (kept_visit IS NULL) = (kept_value IS NULL)
    AND (kept_change IS NULL) = (kept_value IS NULL))
) STRICT;

-- Managed resources, one row for each life. It stays for a while after the resource is gone, as an ended run does.
CREATE TABLE resources(
  resource_no INTEGER PRIMARY KEY REFERENCES entities(entity_no),
  uid TEXT NOT NULL UNIQUE,                       -- the name of its entity
  root TEXT NOT NULL,                             -- of its project
  manager TEXT NOT NULL,
  key TEXT NOT NULL,
  definition_id TEXT NOT NULL REFERENCES definitions(definition_id),      -- the manager's code as of the last apply
  environment_id TEXT NOT NULL REFERENCES environments(environment_id),
  paused INTEGER NOT NULL DEFAULT 0 CHECK (paused IN (0, 1)),
  hold TEXT CHECK (hold IN ('effect_ambiguous', 'restored', 'process_unreaped', 'broken')),
  hold_detail TEXT,
  spec BLOB, spec_crc32 INTEGER, spec_digest TEXT REFERENCES contents(digest),
  status BLOB, status_crc32 INTEGER, status_digest TEXT REFERENCES contents(digest),
  conditions BLOB NOT NULL,
  spec_generation INTEGER NOT NULL CHECK (spec_generation >= 1),
  observed_generation INTEGER NOT NULL DEFAULT 0 CHECK (observed_generation <= spec_generation),
  error BLOB,                                     -- of the last reconcile, if it failed
  failures INTEGER NOT NULL DEFAULT 0,            -- reconciles that failed, in a row
  requeues INTEGER NOT NULL DEFAULT 0,            -- that asked to be repeated at once, in a row and for one spec
  reconciles INTEGER NOT NULL DEFAULT 0,          -- that were begun
  reconciled_wall_ms INTEGER,                     -- when the last one ended
  deleting_wall_ms INTEGER,
  children TEXT CHECK (children IN ('cancel', 'leave')),  -- what becomes of its runs when it goes
  created_wall_ms INTEGER NOT NULL,
  gone_wall_ms INTEGER,
  watch TEXT CHECK (watch IS NULL OR json_type(watch) = 'object'),  -- watched paths, with their marks before the last reconcile
  events_from INTEGER NOT NULL DEFAULT 1,         -- the first revision whose event is kept
  trim_wall_ms INTEGER,                           -- when that event was made, where more are kept than must be
  CHECK ((hold_detail IS NOT NULL) <= (hold IS NOT NULL)),
  CHECK ((deleting_wall_ms IS NULL) = (children IS NULL)),
  CHECK ((gone_wall_ms IS NOT NULL) <= (deleting_wall_ms IS NOT NULL))
) STRICT;
CREATE UNIQUE INDEX one_life ON resources(manager, key, root) WHERE gone_wall_ms IS NULL;
CREATE INDEX resources_by_root ON resources(root, manager) WHERE gone_wall_ms IS NULL;
CREATE INDEX resources_alive ON resources(resource_no) WHERE gone_wall_ms IS NULL;
CREATE INDEX resources_by_end ON resources(gone_wall_ms) WHERE gone_wall_ms IS NOT NULL;
CREATE INDEX resources_to_trim ON resources(trim_wall_ms) WHERE trim_wall_ms IS NOT NULL AND gone_wall_ms IS NULL;
CREATE INDEX resources_kept_back ON resources(resource_no) WHERE (hold IS NOT NULL OR paused = 1) AND gone_wall_ms IS NULL;
CREATE INDEX resources_watching ON resources(resource_no) WHERE watch IS NOT NULL AND gone_wall_ms IS NULL;
CREATE INDEX resources_by_definition ON resources(definition_id);
CREATE INDEX resources_by_environment ON resources(environment_id);
CREATE INDEX resources_by_spec ON resources(spec_digest) WHERE spec_digest IS NOT NULL;
CREATE INDEX resources_by_status ON resources(status_digest) WHERE status_digest IS NOT NULL;

-- What must be undone before a resource may go; its manager says what each stands for.
CREATE TABLE finalizers(
  resource_no INTEGER NOT NULL REFERENCES resources(resource_no),
  place INTEGER NOT NULL,
  name TEXT NOT NULL,
  PRIMARY KEY (resource_no, name)
) STRICT, WITHOUT ROWID;

-- What is left of a child run that retention has removed: its resource lives, and may ask for it again under its key.
CREATE TABLE former_children(
  resource_no INTEGER NOT NULL REFERENCES resources(resource_no),
  call_key TEXT NOT NULL,
  call_fingerprint TEXT NOT NULL,
  run_no INTEGER NOT NULL,                        -- of the newest run under the key, as it ended
  run_id TEXT NOT NULL,
  workflow TEXT NOT NULL,
  status TEXT NOT NULL CHECK (status IN ('completed', 'failed', 'timed_out', 'cancelled')),
  reason TEXT,
  restart_no INTEGER NOT NULL,
  created_wall_ms INTEGER NOT NULL,
  ended_wall_ms INTEGER NOT NULL,
  output BLOB, output_crc32 INTEGER, output_digest TEXT REFERENCES contents(digest),
  PRIMARY KEY (resource_no, call_key)
) STRICT, WITHOUT ROWID;
CREATE INDEX former_children_by_age ON former_children(resource_no, run_no);
CREATE INDEX former_children_by_output ON former_children(output_digest) WHERE output_digest IS NOT NULL;

-- One row per resource, while it is due or being reconciled: so wake-ups merge.
CREATE TABLE reconcile_queue(
  resource_no INTEGER PRIMARY KEY REFERENCES resources(resource_no),
  state TEXT NOT NULL CHECK (state IN ('later', 'ready', 'live')),
  due_wall_ms INTEGER NOT NULL,
  due_elapsed_ms INTEGER,                         -- within the boot it decides
  due_boot_id TEXT,
  reasons BLOB NOT NULL,                          -- what has woken it since the last reconcile began
  woken INTEGER NOT NULL DEFAULT 0 CHECK (woken IN (0, 1, 2))  -- while it was live: once more after that; 2: hurried
) STRICT;
CREATE INDEX reconcile_queue_ready ON reconcile_queue(due_wall_ms) WHERE state = 'ready';
CREATE INDEX reconcile_queue_live ON reconcile_queue(resource_no) WHERE state = 'live';
CREATE INDEX reconcile_queue_later_wall ON reconcile_queue(due_wall_ms) WHERE state = 'later' AND due_elapsed_ms IS NULL;
CREATE INDEX reconcile_queue_later_elapsed ON reconcile_queue(due_elapsed_ms)
  WHERE state = 'later' AND due_elapsed_ms IS NOT NULL;

-- Ways to reach people outside. Each is an entity whose generation counts the processes of its adapter; it stays when the
-- configuration names it no more.
CREATE TABLE channels(
  channel_no INTEGER PRIMARY KEY REFERENCES entities(entity_no),
  name TEXT NOT NULL UNIQUE,                      -- of its entity
  kind TEXT NOT NULL,                             -- as the configuration says: 'command', …
  tells BLOB NOT NULL,                            -- of what: ["decide", …]; [] where it is not configured
  state TEXT NOT NULL CHECK (state IN ('off', 'starting', 'up', 'down')),
  trouble TEXT,                                   -- what is wrong with it
  changed_wall_ms INTEGER NOT NULL,               -- since when it is in this state
  cursor TEXT                                     -- how far its adapter has read what people sent
) STRICT;

-- What has happened, for channels to tell, written by the triggers below in the transaction in which it happens. A row goes
-- in the one that makes messages of it.
CREATE TABLE happenings(
  happening_no INTEGER PRIMARY KEY,
  event TEXT NOT NULL CHECK (event IN ('asked', 'held', 'failed', 'ended', 'notice')),
  run_id TEXT NOT NULL REFERENCES runs(run_id),
  request_id TEXT REFERENCES requests(request_id),
  attempt INTEGER,                                -- that made the notice
  CHECK ((event = 'notice') = (attempt IS NOT NULL))
) STRICT;
CREATE INDEX happenings_by_run ON happenings(run_id);

-- What a channel is to show, shows or has shown. Each send is an effect of the channel, whose part is the message's id.
CREATE TABLE channel_messages(
  message_no INTEGER PRIMARY KEY,
  message_id TEXT NOT NULL UNIQUE,
  channel_no INTEGER NOT NULL REFERENCES channels(channel_no),
  event TEXT NOT NULL CHECK (event IN ('decide', 'remind', 'waiting', 'held', 'failed', 'ended', 'notice', 'test')),
  run_id TEXT REFERENCES runs(run_id),
  request_id TEXT REFERENCES requests(request_id),
  attempt INTEGER,                                -- whose output is the notice
  state TEXT NOT NULL CHECK (state IN ('due', 'sending', 'shown', 'refused', 'ambiguous', 'closing', 'closed', 'void')),
  tries INTEGER NOT NULL DEFAULT 0,               -- sends that were begun, or closings
  early INTEGER NOT NULL DEFAULT 0 CHECK (early <= tries), -- of these, what nobody was reached by: no bound counts them
  due_wall_ms INTEGER,
  token_digest TEXT,                              -- SHA-256 of what an answer from the channel must bring
  why TEXT,                                       -- it is refused, ambiguous or void
  created_wall_ms INTEGER NOT NULL,
  CHECK ((state IN ('due', 'closing')) = (due_wall_ms IS NOT NULL)),
  CHECK ((event = 'test') = (run_id IS NULL)),
  CHECK ((event = 'notice') = (attempt IS NOT NULL)),
  CHECK ((event IN ('decide', 'remind', 'waiting')) = (request_id IS NOT NULL))
) STRICT;
CREATE INDEX channel_messages_due ON channel_messages(channel_no, due_wall_ms) WHERE state IN ('due', 'closing');
CREATE INDEX channel_messages_sending ON channel_messages(channel_no) WHERE state = 'sending';
CREATE INDEX channel_messages_ambiguous ON channel_messages(message_no) WHERE state = 'ambiguous';
CREATE INDEX channel_messages_newest ON channel_messages(channel_no, message_no);
CREATE INDEX channel_messages_by_run ON channel_messages(run_id) WHERE run_id IS NOT NULL;
CREATE INDEX channel_messages_by_request ON channel_messages(request_id, channel_no) WHERE request_id IS NOT NULL;
CREATE UNIQUE INDEX channel_messages_by_token ON channel_messages(token_digest) WHERE token_digest IS NOT NULL;
CREATE UNIQUE INDEX decision_shown_once ON channel_messages(channel_no, request_id)
  WHERE event = 'decide' AND state <> 'void';

CREATE TRIGGER request_asked AFTER INSERT ON requests WHEN EXISTS (SELECT 1 FROM channels WHERE state <> 'off') BEGIN
  INSERT INTO happenings(event, run_id, request_id) VALUES ('asked', new.run_id, new.request_id);
END;
CREATE TRIGGER request_closed AFTER UPDATE OF status ON requests WHEN old.status = 'pending' AND new.status <> 'pending' BEGIN
  DELETE FROM happenings WHERE run_id = new.run_id AND request_id = new.request_id;
  UPDATE channel_messages SET state = 'closing', tries = 0, early = 0, due_wall_ms = new.settled_wall_ms
  WHERE request_id = new.request_id AND state = 'shown';
  UPDATE channel_messages SET state = 'void', due_wall_ms = NULL, why = 'it was settled before it was shown'
  WHERE request_id = new.request_id AND state = 'due';
END;
CREATE TRIGGER run_held AFTER UPDATE OF hold ON runs
WHEN new.hold IS NOT NULL AND new.hold IS NOT old.hold AND new.hold <> 'paused'
  AND EXISTS (SELECT 1 FROM channels WHERE state <> 'off') BEGIN
  INSERT INTO happenings(event, run_id) VALUES ('held', new.run_id);
END;
CREATE TRIGGER run_resumed AFTER UPDATE OF hold ON runs
WHEN old.hold = 'restored' AND new.hold IS NULL AND EXISTS (SELECT 1 FROM channels WHERE state <> 'off') BEGIN
  INSERT INTO happenings(event, run_id, request_id)
  SELECT 'asked', run_id, request_id FROM requests WHERE run_id = new.run_id AND status = 'pending';
END;
CREATE TRIGGER notice_made AFTER UPDATE OF notice ON attempts
WHEN new.notice IS NOT NULL AND old.notice IS NULL AND EXISTS (SELECT 1 FROM channels WHERE state <> 'off') BEGIN
  INSERT INTO happenings(event, run_id, attempt)
  SELECT 'notice', run_id, new.attempt FROM runs WHERE run_no = new.run_no;
END;
CREATE TRIGGER run_ended AFTER UPDATE OF status ON runs
WHEN new.ended_wall_ms IS NOT NULL AND old.ended_wall_ms IS NULL AND EXISTS (SELECT 1 FROM channels WHERE state <> 'off') BEGIN
  INSERT INTO happenings(event, run_id)
  VALUES (CASE WHEN new.status IN ('failed', 'timed_out') THEN 'failed' ELSE 'ended' END, new.run_id);
END;
