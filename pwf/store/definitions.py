"""Definitions: saved when a run starts, read when its runner is launched."""

from __future__ import annotations

from typing import Any

import msgspec

from pwf.errors import NotFound
from pwf.protocol.graph import SourceFile, WorkflowDefinition
from pwf.protocol.spawn import PinnedSource, SourceBundle
from pwf.store.queries import load_queries
from pwf.store.state import encode, graph_of
from pwf.store.tx import Tx
from pwf.store.values import load_content, store_content

Q = load_queries(__file__)


class SaveDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """`texts`: digest -> bytes of every source in the definition."""

    definition: WorkflowDefinition
    path: str
    texts: dict[str, bytes]


def save_definition(tx: Tx, command: SaveDefinition) -> bool:
    """Keep a definition and its sources; False when it is known already."""
    definition = command.definition
    if tx.one(Q.known, {"definition_id": definition.definition_id}) is not None:
        return False
    tx.lengthy()  # sources and data files may have some MiB
    for source in definition.sources:
        store_content(tx, command.texts[source.digest])
    tx.run(
        Q.add_definition,
        {
            "definition_id": definition.definition_id,
            "workflow": definition.graph.name,
            "root": definition.root,
            "path": command.path,
            "graph": encode(definition.graph),
            "packages": encode(definition.packages),
            "warnings": encode(definition.warnings),
            "now": tx.now.wall_ms,
        },
    )
    for source in definition.sources:
        values: dict[str, Any] = {f: getattr(source, f) for f in ("path", "kind", "module", "digest", "size")}
        tx.run(Q.add_source, {"definition_id": definition.definition_id, **values})
    return True


def definition_sources(tx: Tx, definition_id: str) -> tuple[SourceFile, ...]:
    """The recorded files, data files included."""
    rows = tx.all(Q.sources, {"definition_id": definition_id})
    return tuple(SourceFile(path=p, kind=k, module=m, digest=d, size=s) for p, k, m, d, s in rows)


def stored_definition(tx: Tx, definition_id: str) -> SaveDefinition:
    """What a run of it executes, as it was saved, without the texts: they are here."""
    row = tx.one(Q.whole, {"definition_id": definition_id})
    if row is None:
        raise NotFound(f"there is no definition {definition_id}")
    root, path, packages, warnings = row
    definition = WorkflowDefinition(
        definition_id=definition_id,
        graph=graph_of(tx, definition_id).graph,
        root=root,
        sources=definition_sources(tx, definition_id),
        packages=msgspec.json.decode(packages, type=dict[str, str]),
        warnings=msgspec.json.decode(warnings, type=tuple[str, ...]),
    )
    return SaveDefinition(definition=definition, path=path, texts={})


def load_bundle(tx: Tx, definition_id: str) -> SourceBundle:
    """The pinned modules with their bytes."""
    row = tx.one(Q.root_of, {"definition_id": definition_id})
    if row is None:
        raise NotFound(f"there is no definition {definition_id}")
    sources = [
        PinnedSource(path=path, kind=kind, module=module, text=load_content(tx, digest))
        for path, kind, module, digest, _size in tx.all(Q.sources, {"definition_id": definition_id})
        if kind != "data"
    ]
    return SourceBundle(definition_id=definition_id, root=row[0], sources=tuple(sources))


class LaunchFacts(msgspec.Struct, frozen=True, kw_only=True):
    """How a definition is launched. `sources` only where they must be compared with the files (source="verify")."""

    root: str
    isolate: str
    sources: tuple[SourceFile, ...] = ()


def launch_facts(tx: Tx, definition_id: str) -> LaunchFacts:
    """What a supervisor must know of a definition before it asks for a runner."""
    row = tx.one(Q.root_of, {"definition_id": definition_id})
    if row is None:
        raise NotFound(f"there is no definition {definition_id}")
    graph = graph_of(tx, definition_id).graph
    return LaunchFacts(
        root=row[0],
        isolate=graph.isolate,
        sources=definition_sources(tx, definition_id) if graph.source == "verify" else (),
    )
