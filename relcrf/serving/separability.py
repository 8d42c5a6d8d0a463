"""A test whether a model can be grounded on several requests at once, so that no factor depends on two requests.

The coded tables of requests are concatenated, with distinct vids (dense indices of entities). Requests remain separate if
each plan joins all its scans by equal vids. Scans that are joined by values only, such as a common device or similar
names, could join rows of two requests.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import Any

from relcrf.data.names import domain_table, entity_table, relation_table
from relcrf.grounding.lowered_model import LoweredModel
from relcrf.grounding.plan import Column, Lookup, Plan, Scan, equivalence_classes
from relcrf.model.nodes import children
from relcrf.model.spec import DerivedRelation, ModelSpec, OpenDomain, Relation


def is_separable(spec: ModelSpec, model: LoweredModel) -> bool:
    """Return True if the factors of several requests, grounded at once, are those of the requests grounded alone.

    Models with predicted relations, candidates, recursive relations or nearest neighbours are never separable.
    """
    if spec.random_relations or any(template.is_candidate for template in spec.templates) or model.derived is None:
        return False
    tables = _SharedTables(spec)
    return all(tables.are_separate(plan) for plan in model.plans)


class _SharedTables:
    """The tables that contain rows of several requests, with the columns that distinguish the requests."""

    def __init__(self, spec: ModelSpec) -> None:
        self.vid_columns: dict[str, frozenset[str]] = {}
        """The columns with vids of each table."""
        for entity in spec.entities:
            self.vid_columns[entity_table(entity.name)] = frozenset({"vid"})
        relations: tuple[Relation | DerivedRelation, ...] = (*spec.relations, *spec.derived_relations)
        for relation in relations:
            arguments = enumerate(relation.parameters)
            vids = frozenset(f"a{k}" for k, parameter in arguments if spec.entity(parameter.type_name))
            self.vid_columns[relation_table(relation.name)] = vids
        self.closed_domains = {
            domain_table(domain.name)
            for domain in (*spec.domains, *spec.inline_domains)
            if not isinstance(domain, OpenDomain)
        }

    def are_separate(self, plan: Plan, outer: Set[Column] = frozenset()) -> bool:
        """Return True if equal vids join all scans of a plan, and the scans of each subplan with the plan.

        Args:
            outer: The columns with vids of the outer plans, if it is a subplan.
        """
        vids = {Column(scan.alias, name) for scan in plan.scans for name in self._vids_of(scan)}
        classes = [members & (vids | outer) for members in equivalence_classes(plan)]
        joined = {column.alias for column in outer} or {min((column.alias for column in vids), default="")}
        size = -1
        while size != len(joined):
            size = len(joined)
            for members in classes:
                if any(column.alias in joined for column in members):
                    joined |= {column.alias for column in members}
        return all(
            scan.alias in joined or self._is_shared_domain(scan, plan) for scan in plan.scans
        ) and self._are_parts_separate((plan.filters, plan.outputs), vids | outer)

    def _vids_of(self, scan: Scan) -> Set[str]:
        if scan.table.startswith("bag."):
            return {"vid"}
        return self.vid_columns.get(scan.table, frozenset())

    def _is_shared_domain(self, scan: Scan, plan: Plan) -> bool:
        """Return True if a scan of a domain adds no rows because of values that only another request contains."""
        if scan.table in self.closed_domains:
            return True
        code = Column(scan.alias, "code")
        return scan.table.startswith("dom.") and any(code in members for members in equivalence_classes(plan))

    def _are_parts_separate(self, node: Any, outer: Set[Column]) -> bool:
        for part in _parts(node):
            if isinstance(part, Plan) and not self.are_separate(part, outer):
                return False
            if isinstance(part, Lookup) and part.key_column not in ("vid", "code"):
                return False
        return True


def _parts(node: Any) -> Iterator[Any]:
    """Yield the subplans and lookups in conditions or terms, but not those within subplans."""
    for child in children(node):
        if isinstance(child, Plan):
            yield child
            continue
        if isinstance(child, Lookup):
            yield child
        yield from _parts(child)


def open_predicted_domains(spec: ModelSpec) -> Iterator[str]:
    """Yield the open domains of predicted attributes; a new value in a request adds a state to all their variables."""
    for attribute in (attribute for entity in spec.entities for attribute in entity.attributes if attribute.is_random):
        domain = getattr(attribute.type, "domain", "")
        if isinstance(spec.domain(domain), OpenDomain):
            yield domain
