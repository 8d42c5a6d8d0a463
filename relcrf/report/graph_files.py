"""Exports of the learned graph: GraphML and Graphviz DOT."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from relcrf.evaluation.learned_graph import LearnedGraph
from relcrf.files import atomic_path, require_suffix, require_writable_folder
from relcrf.printable import escape_unprintable

ENDING = ".graphml"


def require_writable(path: Path) -> None:
    """Validate the name of a GraphML file (see `require_suffix`) and create its folder."""
    require_suffix(path, (ENDING,), f"graph{ENDING}")
    require_writable_folder(path.parent)


def write_graphml(graph: LearnedGraph, path: Path) -> None:
    """Write a graph as GraphML, atomically. The weight, the sign and the gain of an edge are omitted if unknown.

    Raises:
        UsageError: See `require_writable`.
    """
    require_writable(path)
    networkx = import_module("networkx")  # imported here because it is slow to import and rarely needed
    exported = networkx.MultiGraph()
    for number, ((kind, name), degree) in enumerate(zip(graph.nodes.rows(), graph.degrees.tolist(), strict=True)):
        exported.add_node(f"n{number}", name=escape_unprintable(name), kind=escape_unprintable(kind), degree=degree)
    for first, second, template, strength, weight, gain in graph.edges.rows():
        attributes = {"weight": weight, "sign": 1 if weight > 0 else -1} if weight == weight else {}
        attributes |= {"gain": gain} if gain == gain else {}
        exported.add_edge(f"n{first}", f"n{second}", template=template, strength=strength, **attributes)
    with atomic_path(path) as partial:
        # This writer of NetworkX needs only the standard library.
        networkx.write_graphml_xml(exported, partial, prettyprint=True)


def as_dot(graph: LearnedGraph) -> str:
    """Return the graph in DOT; stronger edges are wider, and edges with a negative weight are dashed."""
    lines = ["graph learned {", "    node [shape=ellipse, fontname=Helvetica]"]
    lines += [f"    n{number} [label={_quoted(name)}]" for number, name in enumerate(graph.nodes["name"])]
    for first, second, template, strength, weight, _ in graph.edges.rows():
        width = 0.4 + 3.6 * strength / graph.edges["strength"][0]
        style = ", style=dashed" if weight < 0 else ""
        lines.append(f"    n{first} -- n{second} [penwidth={width:.3g}{style}]  // {template}")
    return "\n".join([*lines, "}"]) + "\n"


def _quoted(text: str) -> str:
    return '"' + escape_unprintable(text).replace("\\", "\\\\").replace('"', '\\"') + '"'
