"""The learned graph for other programs: GraphML, and Graphviz's DOT."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from relcrf.evaluation.learned_graph import Edge, LearnedGraph
from relcrf.files import require_ending, whole_path
from relcrf.printable import printable

ENDING = ".graphml"


def require_writable(path: Path) -> None:
    """Validate the name of a GraphML file, see `require_ending`, and make its folder."""
    require_ending(path, (ENDING,), f"graph{ENDING}")
    path.parent.mkdir(parents=True, exist_ok=True)


def write_graphml(graph: LearnedGraph, path: Path) -> None:
    """Write a graph through a temporary name. Nodes have a name, a kind and a degree; edges the fields of `Edge`, and a sign.

    Raises:
        UsageError: see `require_writable`.
    """
    require_writable(path)
    networkx = import_module("networkx")  # no other command needs it, and it takes long to import
    made = networkx.MultiGraph()
    for number, (node, degree) in enumerate(zip(graph.nodes, graph.degrees.tolist(), strict=True)):
        made.add_node(f"n{number}", name=printable(node.name), kind=printable(node.kind), degree=degree)
    for edge in graph.edges:
        made.add_edge(f"n{edge.first}", f"n{edge.second}", **_facts(edge))
    with whole_path(path) as partial:
        # The writer that is there wherever Python is.
        networkx.write_graphml_xml(made, partial, prettyprint=True)


def _facts(edge: Edge) -> dict[str, Any]:
    """What is known of an edge."""
    facts: dict[str, Any] = {"template": edge.template, "strength": edge.strength}
    if edge.weight is not None:
        facts |= {"weight": edge.weight, "sign": 1 if edge.weight > 0 else -1}
    return facts if edge.gain is None else {**facts, "gain": edge.gain}


def as_dot(graph: LearnedGraph) -> str:
    """The text of a graph in DOT: wide edges are strong, dashed ones negative."""
    lines = ["graph learned {", "    node [shape=ellipse, fontname=Helvetica]"]
    lines += [f"    n{number} [label={_quoted(node.name)}]" for number, node in enumerate(graph.nodes)]
    for edge in graph.edges:
        width = 0.4 + 3.6 * edge.strength / graph.edges[0].strength
        style = ", style=dashed" if edge.weight is not None and edge.weight < 0 else ""
        lines.append(f"    n{edge.first} -- n{edge.second} [penwidth={width:.3g}{style}]  // {edge.template}")
    return "\n".join([*lines, "}"]) + "\n"


def _quoted(text: str) -> str:
    return '"' + printable(text).replace("\\", "\\\\").replace('"', '\\"') + '"'
