"""The graph command."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from relcrf.backends import run_folder
from relcrf.cli.flat_options import JsonOption
from relcrf.cli.options import RunArgument
from relcrf.cli.output import print_json, print_line, print_note, print_table
from relcrf.data.frame import Frame
from relcrf.evaluation.learned_graph import LearnedGraph, build_learned_graph, require_edges
from relcrf.report import graph_files, network
from relcrf.report.plot import require_drawable

_MAX_HUBS = 5


def graph(
    run: RunArgument,
    graphml: Annotated[
        Path | None,
        typer.Option("--graphml", metavar="PATH", help="Write the graph to a .graphml file."),
    ] = None,
    picture: Annotated[
        Path | None,
        typer.Option("--picture", metavar="PATH", help="Draw the graph to a .png or .svg file."),
    ] = None,
    dot: Annotated[bool, typer.Option("--dot", help="Print the graph in the DOT format of Graphviz.")] = False,
    top: Annotated[int, typer.Option("--top", metavar="INT", min=1, help="Number of edges to print.")] = 20,
    as_json: JsonOption = False,
) -> None:
    """Show the graph that structure learning selected from the candidates: its largest edges and its hubs.

    Example: relcrf graph runs/animals --picture animals.png
    """
    if graphml is not None:
        graph_files.require_writable(graphml)
    if picture is not None:
        require_drawable(picture)
    learned = build_learned_graph(run_folder.load(run))
    require_edges(learned)
    if graphml is not None:
        graph_files.write_graphml(learned, graphml)
    if picture is not None:
        network.save_graph(learned, picture)
    if as_json:
        counts = {"nodes": len(learned.nodes), "edges": len(learned.edges), "triples": learned.triples}
        answer = {**counts, "hubs": _find_hubs(learned), "largest": _largest_edges(learned, top).to_dicts()}
        files = {name: path for name, path in (("graphml", graphml), ("picture", picture)) if path is not None}
        print_json({"run": run, **answer, **files, **({"dot": graph_files.as_dot(learned)} if dot else {})})
        return
    if dot:
        sys.stdout.write(graph_files.as_dot(learned))
    else:
        _print_graph(learned, top)
    for path in (graphml, picture):
        if path is not None:
            print_note(f"wrote {path}")
    if learned.triples:
        print_note(f"{learned.triples:,} chosen candidates have three literals and are not shown as edges")


def _find_hubs(learned: LearnedGraph) -> list[dict[str, Any]]:
    """Return the name, kind and degree of the nodes with the highest degrees."""
    hubs = np.argsort(-learned.degrees, kind="stable")[:_MAX_HUBS]
    names, kinds = (learned.nodes[column][hubs] for column in ("name", "kind"))
    return Frame({"name": names, "kind": kinds, "degree": learned.degrees[hubs]}).to_dicts()


def _largest_edges(learned: LearnedGraph, top: int) -> Frame:
    """Return the `top` strongest edges with the names of the two nodes; the edges are already sorted by strength."""
    edges = learned.edges.take_rows(np.arange(min(top, len(learned.edges))))
    names = learned.nodes["name"]
    return Frame({**edges.columns, "first": names[edges["first"]], "second": names[edges["second"]]})


def _print_graph(learned: LearnedGraph, top: int) -> None:
    """Print a table of the largest edges, and a line with the hubs."""
    shown = _largest_edges(learned, top)
    has_gain = not np.isnan(shown["gain"]).all()
    rows = []
    for first, second, template, strength, weight, gain in shown.rows():
        texts = [first, second, template, f"{weight:+.4f}" if weight == weight else f"±{strength:.4f}"]
        rows.append([*texts, f"{gain:.4g}" if gain == gain else ""][: 4 + has_gain])
    title = f"{len(learned.nodes):,} nodes, {len(learned.edges):,} edges"
    if len(shown) < len(learned.edges):
        title += f"; the {len(shown)} largest"
    print_table(title, ("first", "second", "template", "weight", *(("gain",) if has_gain else ())), rows)
    hubs = ", ".join(f"{hub['name']} ({hub['degree']})" for hub in _find_hubs(learned))
    print_line(f"hubs (degree): {hubs}")
    if np.isnan(shown["weight"]).any():
        print_note("±: norm of the weights of an edge with several weights")
