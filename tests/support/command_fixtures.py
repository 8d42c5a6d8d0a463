"""The command inside the test's process, and a small web for it."""

import pytest
from command import json_command, relcrf_command
from tables import small_web


@pytest.fixture
def relcrf_(capsys, monkeypatch):
    return lambda *arguments: relcrf_command(capsys, monkeypatch, *arguments)


@pytest.fixture
def relcrf_json(capsys, monkeypatch):
    return lambda *arguments: json_command(capsys, monkeypatch, *arguments)


@pytest.fixture(scope="module")
def web(tmp_path_factory):
    return small_web(tmp_path_factory.mktemp("web"))
