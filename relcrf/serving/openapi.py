"""The OpenAPI description of the service of a run, with the tables of the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from relcrf import __version__
from relcrf.data.names import bag_table_names, bag_value_names, state_column_names
from relcrf.model.spec import AttributeDeclaration, EnumeratedDomain, ModelSpec, RangeDomain, fold_name
from relcrf.model.types import AttributeType, Bag, Bool, Date, Datetime, DomainType, Integer, Real, String, Time, Vector
from relcrf.serving.request import RequestSchema
from relcrf.serving.text_columns import TextColumn

Schema: TypeAlias = dict[str, Any]
"""A JSON schema."""

KEY: Schema = {"type": ["string", "integer"], "description": "Key of an entity."}
SCALARS: dict[AttributeType, Schema] = {
    Real(): {"type": ["number", "null"]},
    Integer(): {"type": ["integer", "null"]},
    Bool(): {"type": ["boolean", "null"]},
    String(): {"type": ["string", "null"]},
    Date(): {"type": ["string", "null"], "examples": ["2026-01-31"]},
    Time(): {"type": ["string", "null"], "examples": ["13:45:00"]},
    Datetime(): {"type": ["string", "null"], "examples": ["2026-01-31T13:45:00Z"]},
    Vector(): {"type": "array", "items": {"type": "number"}},
}
STATUSES = {
    "400": "The body is not JSON, or the request is not HTTP that the service accepts.",
    "408": "The body did not arrive within the time limit.",
    "413": "The body is too large, or contains too many requests.",
    "415": "The content type is not application/json.",
    "422": "The tables, a name or an argument is invalid.",
    "500": "An internal error, of which the log of the service contains the details.",
    "503": "Too many requests wait; the header Retry-After contains the seconds after which to send the request again.",
    "504": "The request was not processed within the time limit.",
}
"""The statuses of errors of the POST routes."""


def openapi_document(schema: RequestSchema, attributes: Sequence[str], *, has_stored_tables: bool) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of the service.

    Args:
        attributes: The predicted attributes and relations.
        has_stored_tables: Whether the service has tables whose entities can be searched and explained by name.
    """
    predicted = {"type": "string", "enum": list(attributes)}
    attribute: Schema = {
        "name": "attribute",
        "in": "query",
        "required": len(attributes) > 1,
        "schema": predicted,
        "description": "The predicted attribute or relation.",
    }
    coverage: Schema = {
        "name": "coverage",
        "in": "query",
        "schema": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
        "description": "Probability that the interval of a number, or the prediction set, contains the true value.",
    }
    paths: dict[str, Any] = {
        "/predict": {
            "post": {
                "operationId": "predict",
                "summary": "Predict the missing values of a request, or of each request in a list.",
                "parameters": [attribute, coverage],
                "requestBody": _body(
                    {"anyOf": [_reference("Tables"), {"type": "array", "items": _reference("Tables")}]}
                ),
                "responses": _responses({"anyOf": [_reference("Predictions"), _reference("Results")]}, STATUSES),
            }
        },
        "/explain": {
            "post": {
                "operationId": "explain",
                "summary": "Explain the prediction of one variable by contributions to its log odds.",
                "requestBody": _body(_reference("ExplanationRequest")),
                "responses": _responses(_reference("Explanation"), STATUSES),
            }
        },
        "/healthz": {
            "get": {
                "operationId": "health",
                "summary": "Report the loaded run, the number of requests and their response times.",
                "responses": _responses({"type": "object"}, {}),
            }
        },
        "/openapi.json": {
            "get": {
                "operationId": "describe",
                "summary": "Return this document.",
                "responses": _responses({"type": "object"}, {}),
            }
        },
    }
    if has_stored_tables:
        paths["/variables"] = {
            "get": {
                "operationId": "search",
                "summary": "Return variables of the stored tables whose names contain a text.",
                "parameters": [
                    {"name": "search", "in": "query", "schema": {"type": "string"}, "description": "Part of a name."}
                ],
                "responses": _responses(
                    {"type": "object", "properties": {"variables": {"type": "array", "items": {"type": "object"}}}},
                    {status: STATUSES[status] for status in ("500", "503", "504")},
                ),
            }
        }
    return {
        "openapi": "3.1.0",
        "info": {"title": f"relcrf: predictions of {', '.join(attributes)}", "version": __version__},
        "paths": paths,
        "components": {"schemas": {**_table_schemas(schema), **_message_schemas(has_stored_tables)}},
    }


def _reference(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _body(schema: Schema) -> Schema:
    return {"required": True, "content": {"application/json": {"schema": schema}}}


def _responses(schema: Schema, errors: Mapping[str, str]) -> Schema:
    responses: Schema = {"200": {"description": "Success.", "content": {"application/json": {"schema": schema}}}}
    for status, text in errors.items():
        responses[status] = {"description": text, "content": {"application/json": {"schema": _reference("Errors")}}}
    return responses


def _message_schemas(has_stored_tables: bool) -> dict[str, Schema]:
    """Return the schemas of the messages that do not depend on the model."""
    number, texts = {"type": ["number", "null"]}, {"type": ["string", "null"]}
    of_values: Schema = {"probability": number, "set": {"type": "string"}}
    of_numbers: Schema = dict.fromkeys(("deviation", "low", "high"), number)
    row: Schema = {"type": "object", "properties": of_values | of_numbers}
    return {
        "Predictions": {
            "type": "object",
            "properties": {"predictions": {"type": "array", "items": row}},
            "required": ["predictions"],
        },
        "Results": {
            "type": "object",
            "properties": {
                "results": {"type": "array", "items": {"anyOf": [_reference("Predictions"), _reference("Errors")]}}
            },
            "required": ["results"],
        },
        "ExplanationRequest": {
            "type": "object",
            "properties": {
                "variable": {
                    "type": "string",
                    "description": "Name of the variable, such as Page/17 or Page/17.topic.",
                },
                "tables": _reference("Tables"),
                "against": {"type": ["string", "null"], "description": "Value to compare the prediction with."},
                "depth": {"type": "integer", "minimum": 1, "maximum": 5},
            },
            "required": ["variable"] if has_stored_tables else ["variable", "tables"],
            "additionalProperties": False,
        },
        "Explanation": {
            "type": "object",
            "description": "Of a category: answer, against, probabilities and log odds. Of a number: mean and deviation.",
            "properties": {
                "variable": {"type": "string"},
                "answer": {"type": "string"},
                "against": {"type": "string"},
                "probabilities": {"type": "object", "additionalProperties": number},
                **dict.fromkeys(("log_odds", "mean", "deviation", "deviation_alone", "total", "remainder"), number),
                "quantity": {
                    "type": "string",
                    "description": "What `total` is: the sum of contributions and remainder.",
                },
                "contributions": {"type": "array", "items": {"type": "object"}},
                "truth": {"type": ["string", "number", "null"]},
            },
            "required": ["variable", "quantity", "total", "contributions", "remainder"],
        },
        "Errors": {
            "type": "object",
            "properties": {"errors": {"type": "array", "items": _reference("Diagnostic")}},
            "required": ["errors"],
        },
        "Diagnostic": {
            "type": "object",
            "properties": {
                "code": {"type": "string"},
                "severity": {"type": "string"},
                "message": {"type": "string"},
                "location": {"type": ["object", "null"]},
                "hint": texts,
                "notes": {"type": "array", "items": {"type": "string"}},
            },
            "required": ["code", "message", "location", "hint"],
        },
    }


def _table_schemas(schema: RequestSchema) -> dict[str, Schema]:
    """Return a schema of the rows of each table, and the schema `Tables` of a request."""
    spec = schema.spec
    rows: dict[str, Schema] = {}
    for entity in spec.entities:
        scalars = [a for a in entity.attributes if not isinstance(a.type, Bag) and not a.latent]
        found = schema.text_columns.get(fold_name(entity.name), ())
        texts = {text.name: _text_schema(text) for text in found if not text.is_read}
        bags = {a.name: _list_schema(spec, a.type) for a in entity.attributes if isinstance(a.type, Bag)}
        row = _row({entity.key: KEY}, {**_attribute_columns(spec, scalars), **bags, **texts})
        numbered = {
            f"^{a.name}_?[0-9]+$": {"type": "number", "description": f"A number of the vector {a.name}."}
            for a in scalars
            if isinstance(a.type, Vector)
        }
        rows[entity.name.lower()] = {**row, "patternProperties": numbered} if numbered else row
        for attribute in entity.attributes:
            if isinstance(attribute.type, Bag):
                value = {bag_value_names(attribute)[1]: _value_schema(spec, DomainType(attribute.type.domain))}
                columns = {entity.name.lower(): KEY, **value}
                rows[bag_table_names(entity, attribute)[0].lower()] = _row(columns, {"count": {"type": "number"}})
    for relation in spec.relations:
        arguments = {p.name: _argument_schema(spec, p.type_name) for p in relation.parameters}
        rows[relation.name.lower()] = _row(arguments, _attribute_columns(spec, relation.attributes))
    for random in spec.random_relations:
        arguments = {p.name: _argument_schema(spec, p.type_name) for p in random.parameters}
        value = {state_column_names(random)[0]: _value_schema(spec, random.type)}
        rows[random.name.lower()] = _row(arguments, value)
    tables = {
        name: {"anyOf": [_reference(f"Row.{name}"), {"type": "array", "items": _reference(f"Row.{name}")}]}
        for name in rows
    }
    return {
        "Tables": {"type": "object", "properties": tables, "additionalProperties": False},
        **{f"Row.{name}": row for name, row in rows.items()},
    }


def _row(required: Mapping[str, Schema], optional: Mapping[str, Schema]) -> Schema:
    properties = {**required, **optional}
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


def _attribute_columns(spec: ModelSpec, attributes: Sequence[AttributeDeclaration]) -> dict[str, Schema]:
    return {attribute.name: _value_schema(spec, attribute.type) for attribute in attributes}


def _list_schema(spec: ModelSpec, bag: Bag) -> Schema:
    items = _value_schema(spec, DomainType(bag.domain))
    return {"type": ["array", "null"], "items": items, "description": "Values of a bag, instead of a table of the bag."}


def _text_schema(text: TextColumn) -> Schema:
    return {"type": ["string", "null"], "description": f"Text whose words are the bag {text.bag}."}


def _argument_schema(spec: ModelSpec, type_name: str) -> Schema:
    return KEY if spec.entity(type_name) is not None else _value_schema(spec, DomainType(type_name))


def _value_schema(spec: ModelSpec, kind: AttributeType) -> Schema:
    if not isinstance(kind, DomainType):
        return SCALARS[kind]
    domain = spec.domain(kind.domain)
    if isinstance(domain, EnumeratedDomain):
        return {"enum": [*domain.values, None]}
    if isinstance(domain, RangeDomain):
        return {"type": ["integer", "null"], "minimum": domain.low, "maximum": domain.high}
    return {"type": ["string", "integer", "null"]}
