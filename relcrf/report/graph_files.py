"""The learned graph for other programs: GraphML, and Graphviz's DOT."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from relcrf.evaluation.learned_graph import LearnedGraph
from relcrf.files import atomic_path, require_suffix
from relcrf.printable import escape_unprintable

ENDING = ".graphml"


def require_writable(path: Path) -> None:
    """Validate the name of a GraphML file, see `require_suffix`, and make its folder."""
    require_suffix(path, (ENDING,), f"graph{ENDING}")
    path.parent.mkdir(parents=True, exist_ok=True)


def write_graphml(graph: LearnedGraph, path: Path) -> None:
    """Write a graph through a temporary name. Nodes have a name, a kind and a degree; edges what is known of them, and a sign.

    Raises:
        UsageError: see `require_writable`.
    """
    require_writable(path)
    networkx = import_module("networkx")  # no other command needs it, and it takes long to import
    made = networkx.MultiGraph()
    for number, ((kind, name), degree) in enumerate(zip(graph.nodes.rows(), graph.degrees.tolist(), strict=True)):
        made.add_node(f"n{number}", name=escape_unprintable(name), kind=escape_unprintable(kind), degree=degree)
    for first, second, template, strength, weight, gain in graph.edges.rows():
        facts = {"weight": weight, "sign": 1 if weight > 0 else -1} if weight == weight else {}
        facts |= {"gain": gain} if gain == gain else {}
        made.add_edge(f"n{first}", f"n{second}", template=template, strength=strength, **facts)
    with atomic_path(path) as partial:
        # The writer that is there wherever Python is.
        networkx.write_graphml_xml(made, partial, prettyprint=True)


def as_dot(graph: LearnedGraph) -> str:
    """The text of a graph in DOT: wide edges are strong, dashed ones negative."""
    lines = ["graph learned {", "    node [shape=ellipse, fontname=Helvetica]"]
    lines += [f"    n{number} [label={_quoted(name)}]" for number, name in enumerate(graph.nodes["name"])]
    for first, second, template, strength, weight, _ in graph.edges.rows():
        width = 0.4 + 3.6 * strength / graph.edges["strength"][0]
        style = ", style=dashed" if weight < 0 else ""
        lines.append(f"    n{first} -- n{second} [penwidth={width:.3g}{style}]  // {template}")
    return "\n".join([*lines, "}"]) + "\n"


def _quoted(text: str) -> str:
    return '"' + escape_unprintable(text).replace("\\", "\\\\").replace('"', '\\"') + '"'
