"""Tests of file systems with restricted locks, such as NFS: by fault injection into `flock`."""

import errno
import fcntl
import os

import pytest

from relcrf.resources import resource_path

MODEL = resource_path("models", "webkb.rcrf")


@pytest.fixture
def nfs(monkeypatch):
    """Give `flock` the semantics of NFS on Linux, which emulates it by byte-range locks; return the numbers of calls."""
    flock, calls = fcntl.flock, {fcntl.LOCK_EX: 0, fcntl.LOCK_SH: 0}

    def emulated(file, operation):
        access = fcntl.fcntl(file, fcntl.F_GETFL) & os.O_ACCMODE
        required = {fcntl.LOCK_EX: (os.O_WRONLY, os.O_RDWR), fcntl.LOCK_SH: (os.O_RDONLY, os.O_RDWR)}
        for kind, modes in required.items():
            if operation & kind:
                calls[kind] += 1
                if access not in modes:
                    raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return flock(file, operation)

    monkeypatch.setattr(fcntl, "flock", emulated)
    return calls


def test_commands_work_on_nfs(relcrf_, web, tmp_path, nfs):
    data = ("--data", web)
    assert (
        relcrf_("train", MODEL, *data, "--backend", "ess", "--out", tmp_path / "run", "--cache", tmp_path / "c")[0] == 0
    )
    assert nfs[fcntl.LOCK_EX] > 5
    assert relcrf_("ground", MODEL, *data, "--cache", tmp_path / "other")[0] == 0
    assert relcrf_("predict", tmp_path / "run", *data, "--cache", tmp_path / "c", "--out", tmp_path / "p.csv")[0] == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c", "other", "p.csv", "run"]


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.EBADF, errno.EOPNOTSUPP, errno.EIO])
def test_refused_lock_is_the_stated_cause(relcrf_, web, tmp_path, monkeypatch, code):
    run = tmp_path / "run"
    assert relcrf_("train", MODEL, "--data", web, "--backend", "ess", "--out", run)[0] == 0
    before = {path.name: path.read_bytes() for path in run.iterdir()}

    def refuse(file, operation):
        if not operation & fcntl.LOCK_UN:
            raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", refuse)
    reason = os.strerror(code).lower()
    cache = ("--cache", tmp_path / "cache")
    for lock, command in {
        ".run.partial.lock": ("train", MODEL, "--data", web, "--backend", "ess", "--out", run, "--force"),
        "cache/.lock": ("ground", MODEL, "--data", web, *cache),
    }.items():
        status, _, err = relcrf_(*command)
        assert (status, err.count("error["), "Traceback" in err) == (2, 1, False), err
        assert f"error[E314]: '{tmp_path / lock}' cannot be locked: {reason}" in err and "local disk" in err
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before
    # A prediction locks nothing.
    assert relcrf_("predict", run, "--data", web, "--out", tmp_path / "found.csv")[0] == 0
