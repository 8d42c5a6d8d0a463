"""DuckDB, PostgreSQL and Spark give the same rows for the same plan."""

from contextlib import closing

import pytest
from checksum import checksum
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from random_models import DATA, DECLARATIONS, PARTS, frames, tables, templates

import relcrf
from relcrf.data.binding import bind
from relcrf.grounding.derive import facts_of
from relcrf.grounding.engines.duckdb import DuckDbEngine
from relcrf.grounding.engines.postgres import PostgresEngine
from relcrf.grounding.engines.spark import SparkEngine
from relcrf.grounding.ground import prepare
from relcrf.grounding.lower import lower_template


def plans(text, data):
    """The bound tables of a model, and the plan of each of its templates."""
    bound = bind(relcrf.parse(text).spec, relcrf.Dataset(data))
    prepare(bound)
    facts = facts_of(bound)
    return bound, {t.name: lower_template(t, facts).plan for t in facts.spec.templates}


def agree(first, second, plan):
    expected = checksum(first.rows(plan), plan.outputs)
    assert checksum(second.rows(plan), plan.outputs) == expected
    return expected


@pytest.fixture(scope="session")
def server(postgres):
    """The URL of a database."""
    return postgres.new_database()


@pytest.mark.parametrize("data", DATA, ids=["whole", "gaps"])
@pytest.mark.parametrize("part", PARTS)
def test_every_part_of_the_language_on_postgres(server, data, part):
    bound, found = plans(DECLARATIONS + "\n".join(PARTS[part]), frames(*data))
    here = DuckDbEngine(bound.connection)
    with closing(PostgresEngine(server, bound.connection)) as there:
        for plan in found.values():
            agree(here, there, plan)


@pytest.mark.slow
@pytest.mark.parametrize("part", PARTS)
def test_every_part_of_the_language_on_spark(spark, tmp_path, part):
    """A third of what the others are asked, for a plan takes Spark a second."""
    bound, found = plans(DECLARATIONS + "\n".join(PARTS[part][::3]), frames(*DATA[1]))
    here = DuckDbEngine(bound.connection)
    with closing(SparkEngine(spark, bound.connection, tmp_path)) as there:
        for plan in found.values():
            agree(here, there, plan)
    assert list(tmp_path.iterdir()) == []


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
)
@given(tables(), st.lists(templates(), min_size=3, max_size=6))
def test_random_models_on_postgres(server, data, bodies):
    declared = dict.fromkeys(text.replace("NAME", f"t{k}") for k, texts in enumerate(bodies) for text in texts)
    bound, found = plans(DECLARATIONS + "\n".join(declared), frames(*data))
    here = DuckDbEngine(bound.connection)
    with closing(PostgresEngine(server, bound.connection)) as there:
        for plan in found.values():
            agree(here, there, plan)
