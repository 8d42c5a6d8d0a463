"""The graph command."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from relcrf.backends import run_folder
from relcrf.cli.options import JsonOption, RunArgument
from relcrf.cli.output import note, print_json, say, table
from relcrf.evaluation.learned_graph import Edge, LearnedGraph, learned_graph, require_edges
from relcrf.report import graph_files, network
from relcrf.report.plot import require_drawable

_HUBS = 5


def graph(
    run: RunArgument,
    graphml: Annotated[
        Path | None, typer.Option("--graphml", help="Where to write the graph, a .graphml file.")
    ] = None,
    picture: Annotated[Path | None, typer.Option("--picture", help="Where to draw it, a .png or .svg file.")] = None,
    dot: Annotated[bool, typer.Option("--dot", help="Print it for Graphviz, and no table.")] = False,
    top: Annotated[int, typer.Option("--top", min=1, help="How many edges the table has.")] = 20,
    as_json: JsonOption = False,
) -> None:
    """Show the graph that training chose out of the candidates: its strongest edges and its hubs.

    Example: relcrf graph runs/animals --picture animals.png
    """
    if graphml is not None:
        graph_files.require_writable(graphml)
    if picture is not None:
        require_drawable(picture)
    found = learned_graph(run_folder.load(run))
    require_edges(found)
    if graphml is not None:
        graph_files.write_graphml(found, graphml)
    if picture is not None:
        network.save(found, picture)
    if as_json:
        answer = _answer(found, top)
        files = {name: path for name, path in (("graphml", graphml), ("picture", picture)) if path is not None}
        print_json({"run": run, **answer, **files, **({"dot": graph_files.as_dot(found)} if dot else {})})
        return
    if dot:
        sys.stdout.write(graph_files.as_dot(found))
    else:
        _show(found, top)
    for what, path in (("graph", graphml), ("picture", picture)):
        if path is not None:
            note(f"the {what} is in {path}")
    if found.triples:
        note(f"{found.triples:,} chosen candidates of three literals are no edges, and not shown")


def _hubs(found: LearnedGraph) -> list[int]:
    """The nodes of the most edges."""
    return [int(node) for node in np.argsort(-found.degrees, kind="stable")[:_HUBS]]


def _answer(found: LearnedGraph, top: int) -> dict[str, Any]:
    hubs = [
        {"name": found.nodes[k].name, "kind": found.nodes[k].kind, "degree": int(found.degrees[k])}
        for k in _hubs(found)
    ]
    strongest = [
        {
            "first": found.nodes[edge.first].name,
            "second": found.nodes[edge.second].name,
            "template": edge.template,
            "strength": edge.strength,
            "weight": edge.weight,
            "gain": edge.gain,
        }
        for edge in found.edges[:top]
    ]
    counts = {"nodes": len(found.nodes), "edges": len(found.edges), "triples": found.triples}
    return {**counts, "hubs": hubs, "strongest": strongest}


def _show(found: LearnedGraph, top: int) -> None:
    """The strongest edges, and the hubs in a line."""
    shown = found.edges[:top]
    has_gain = any(edge.gain is not None for edge in shown)
    rows = [_row(found, edge, has_gain=has_gain) for edge in shown]
    title = f"{len(found.nodes):,} keys, {len(found.edges):,} edges"
    if len(shown) < len(found.edges):
        title += f"; the strongest {len(shown)}"
    table(title, ("first", "second", "of", "weight", *(("gain",) if has_gain else ())), rows)
    hubs = ", ".join(f"{found.nodes[k].name} ({found.degrees[k]})" for k in _hubs(found))
    say(f"most edges: {hubs}")
    if any(edge.weight is None for edge in shown):
        note("of an edge with several weights the weight is their norm, written ±")


def _row(found: LearnedGraph, edge: Edge, *, has_gain: bool) -> list[str]:
    ends = [found.nodes[node].name for node in (edge.first, edge.second)]
    weight = f"±{edge.strength:.4f}" if edge.weight is None else f"{edge.weight:+.4f}"
    gain = [] if not has_gain else [f"{edge.gain:.4g}" if edge.gain is not None else ""]
    return [*ends, edge.template, weight, *gain]
