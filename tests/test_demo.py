"""The main job reaches what it promises, and its tables work from the command line."""

from command import json_command


def test_demo(tmp_path, monkeypatch, capsys):
    out = tmp_path / "demo"
    code, found = json_command(capsys, monkeypatch, "demo", "--out", out)
    assert code == 0
    splits = found["splits"]
    assert [s["seed"] for s in splits] == [0, 1, 2, 3, 4]
    for split in splits:
        assert split["n"] == 1697
        assert split["ess"]["accuracy"] > split["local"]["accuracy"]
        assert set(split["seconds"]) == {"ground", "learn", "infer"}
    assert sum(s["ess"]["accuracy"] for s in splits) / 5 >= 0.94
    assert (out / "changes.png").read_bytes().startswith(b"\x89PNG")
    arguments = (
        "evaluate",
        out / "digits.rcrf",
        "--backend",
        "ess",
        "--data",
        out / "split0",
        "--split",
        "part",
        "--holdout",
        "rest",
    )
    code, again = json_command(capsys, monkeypatch, *arguments)
    assert code == 0
    assert again["attributes"]["Image.digit"]["accuracy"] == splits[0]["ess"]["accuracy"]
