"""The graph command."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from relcrf.backends import run_folder
from relcrf.cli.options import JsonOption, RunArgument
from relcrf.cli.output import print_json, print_line, print_note, print_table
from relcrf.data.frame import Frame
from relcrf.evaluation.learned_graph import LearnedGraph, build_learned_graph, require_edges
from relcrf.report import graph_files, network
from relcrf.report.plot import require_drawable

_MAX_HUBS = 5


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
    found = build_learned_graph(run_folder.load(run))
    require_edges(found)
    if graphml is not None:
        graph_files.write_graphml(found, graphml)
    if picture is not None:
        network.save_graph(found, picture)
    if as_json:
        counts = {"nodes": len(found.nodes), "edges": len(found.edges), "triples": found.triples}
        answer = {**counts, "hubs": _find_hubs(found), "strongest": _largest_edges(found, top).to_dicts()}
        files = {name: path for name, path in (("graphml", graphml), ("picture", picture)) if path is not None}
        print_json({"run": run, **answer, **files, **({"dot": graph_files.as_dot(found)} if dot else {})})
        return
    if dot:
        sys.stdout.write(graph_files.as_dot(found))
    else:
        _print_graph(found, top)
    for what, path in (("graph", graphml), ("picture", picture)):
        if path is not None:
            print_note(f"the {what} is in {path}")
    if found.triples:
        print_note(f"{found.triples:,} chosen candidates of three literals are no edges, and not shown")


def _find_hubs(found: LearnedGraph) -> list[dict[str, Any]]:
    """Return name, kind and degree of the nodes of the most edges."""
    most = np.argsort(-found.degrees, kind="stable")[:_MAX_HUBS]
    names, kinds = (found.nodes[column][most] for column in ("name", "kind"))
    return Frame({"name": names, "kind": kinds, "degree": found.degrees[most]}).to_dicts()


def _largest_edges(found: LearnedGraph, top: int) -> Frame:
    """Return the first edges, with the names of their nodes in place of the numbers."""
    edges = found.edges.take_rows(np.arange(min(top, len(found.edges))))
    names = found.nodes["name"]
    return Frame({**edges.columns, "first": names[edges["first"]], "second": names[edges["second"]]})


def _print_graph(found: LearnedGraph, top: int) -> None:
    """Print the strongest edges, and the hubs in a line."""
    shown = _largest_edges(found, top)
    has_gain = not np.isnan(shown["gain"]).all()
    rows = []
    for first, second, template, strength, weight, gain in shown.rows():
        texts = [first, second, template, f"{weight:+.4f}" if weight == weight else f"±{strength:.4f}"]
        rows.append([*texts, f"{gain:.4g}" if gain == gain else ""][: 4 + has_gain])
    title = f"{len(found.nodes):,} keys, {len(found.edges):,} edges"
    if len(shown) < len(found.edges):
        title += f"; the strongest {len(shown)}"
    print_table(title, ("first", "second", "of", "weight", *(("gain",) if has_gain else ())), rows)
    hubs = ", ".join(f"{hub['name']} ({hub['degree']})" for hub in _find_hubs(found))
    print_line(f"most edges: {hubs}")
    if np.isnan(shown["weight"]).any():
        print_note("of an edge with several weights the weight is their norm, written ±")
