"""`labkit completion`: commands and flags of labkit in the shells that there are."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import nkisim
from labkit.commands import COMMANDS, NKISIMS
from labkit.completion import completion, program

#: what is typed -> the words that complete its last one
TYPED = {
    "labkit sim": ["simulate"],
    "labkit simulate --fu": ["--full"],
    "labkit simulate --target t": ["trn1", "trn2", "trn3"],
    "labkit starter --course trn2 --dialect ": ["beta1", "nki"],
    "labkit progress vec": ["vecadd"],
    "labkit leaderboard ": ["key", "live", "page", "sign"],
    "labkit leaderboard live --ros": ["--roster"],
    "labkit submit ker": ["kernels.py"],
}


COURSE = {"--target", "--course", "--dialect", "--level"}
RUN = COURSE | {"--results", "--host", "--timeout"}
SAME = RUN | {"--json", "--lab"}
#: every command, with the options that are the same everywhere
TAKES = {
    "simulate": RUN | {"--json"},
    **dict.fromkeys(("benchmark", "profile"), RUN | {"--json"}),
    "progress": {"--target", "--json"},
    "submit": {"--dialect", "--results", "--json"},
    "update": {"--json"},
    "remote": {"--results", "--host", "--json"},
    "history": {"--target", "--results", "--json"},
    "verify_sim": {"--target", "--host", "--json"},
    "starter": {"--course", "--dialect", "--lab", "--json"},
    "grade": {"--dialect", "--host", "--lab", "--json"},  # a host of repositories
    "gradescope": {"--dialect", "--lab", "--json"},
    "autograde": {"--lab", "--json"},
    "leaderboard": {"--dialect", "--lab", "--json"},  # of `live`
    **dict.fromkeys(("neuron", "completion", *NKISIMS), set()),
}


def flags_of(parser: argparse.ArgumentParser) -> set[str]:
    """Return the options of a command, and of those that it has."""
    flags = {option for action in parser._actions for option in action.option_strings}
    below = [a.choices for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    return flags.union(*(flags_of(one) for choices in below for one in choices.values()))


@pytest.mark.parametrize("name", COMMANDS)
def test_options_are_the_same_everywhere(name):
    assert flags_of(program().parsers[name]) & SAME == TAKES[name]


def test_the_page_has_each_command_and_whether_it_answers_in_json():
    page = (Path(__file__).parents[2] / "docs" / "commands.md").read_text("utf-8")
    table = page.partition("## Commands of labkit")[2]
    rows = [
        [c.strip() for c in line.split("|")[1:-1]] for line in table.splitlines() if "`" in line
    ]
    rows = [row for row in rows if len(row) == 5 and row[0] != "command"]
    assert {row[0].strip("`"): row[1] for row in rows} == {n: t for n, (_, t) in COMMANDS.items()}
    answers = {row[0].strip("`") for row in rows if row[3] != "no"}
    assert answers == {n for n, takes in TAKES.items() if "--json" in takes} | set(NKISIMS)


@pytest.fixture(scope="module")
def scripts():
    """Return shell -> script."""
    made = program()
    return {shell: made.script(shell) for shell in ("bash", "fish")}


def complete(shell: str, script: str, typed: str, folder) -> list[str]:
    """Return what a shell completes the last word of a line to."""
    (folder / "kernels.py").write_text("")
    (folder / "script").write_text(script)
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"{shell} is not here")
    given = typed.split(" ")
    if shell == "bash":
        words = " ".join(w or repr("") for w in given)
        text = f"source ./script; COMP_WORDS=({words}); COMP_CWORD={len(given) - 1}; _labkit"
        command = [found, "-c", text + "; printf '%s\\n' \"${COMPREPLY[@]}\""]
    else:
        command = [found, "--no-config", "-c", f"source ./script; complete -C '{typed}'"]
    env = {**os.environ, "HOME": str(folder)}
    done = subprocess.run(command, cwd=folder, text=True, capture_output=True, env=env)
    assert not done.stderr
    return sorted(line.split("\t")[0] for line in done.stdout.splitlines())


@pytest.mark.parametrize("shell", ["bash", "fish"])
@pytest.mark.parametrize("typed, words", TYPED.items())
def test_words(tmp_path, scripts, shell, typed, words):
    assert complete(shell, scripts[shell], typed, tmp_path) == words


def test_every_command_is_completed_and_has_flags():
    made = program()
    assert set(made.commands) == set(COMMANDS) == set(made.parsers)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_hands_out_its_parser(name):
    assert nkisim.completion.parser_of("labkit", COMMANDS[name][0]).format_help()


def test_a_command_without_a_parser_is_found(monkeypatch):
    monkeypatch.setitem(COMMANDS, "usage", ("commands:usage", "a new command"))
    with pytest.raises(AttributeError, match="usage_parser"):
        program()


def test_a_parser_is_made_and_nothing_else_is_done(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    program()
    assert capsys.readouterr() == ("", "") and not list(tmp_path.iterdir())


@pytest.mark.skipif(sys.platform == "win32", reason="needs a shell of Unix")
def test_zsh_reads_it(tmp_path, capsys):
    zsh = shutil.which("zsh") or pytest.skip("zsh is not here")
    assert completion(["zsh"]) == 0
    (tmp_path / "script").write_text(capsys.readouterr().out)
    done = subprocess.run(
        [zsh, "-f", "-c", "source ./script && whence -w _labkit"],
        cwd=tmp_path,
        text=True,
        capture_output=True,
    )
    assert done.stdout.strip() == "_labkit: function", done.stderr
