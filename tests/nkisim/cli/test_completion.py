"""The scripts of `nkisim completion`, in the shells that there are."""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import sys
import time

import pytest

import nkisim
from nkisim.cli import completion, main

#: what is typed -> the words that complete its last one
TYPED = {
    "nkisim ch": ["check"],
    "nkisim check --co": ["--course"],
    "nkisim run --course t": ["trn1", "trn2", "trn3"],
    "nkisim profile --lev": ["--level"],
    "nkisim completion ": ["bash", "fish", "zsh"],
    "nkisim profile ker": ["kernels.py"],
}


def needs(shell: str) -> str:
    """Return the program of a shell, or skip."""
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"{shell} is not here")
    return found


@pytest.fixture
def folder(tmp_path):
    """Return a folder with a file of kernels."""
    (tmp_path / "kernels.py").write_text("")
    return tmp_path


@pytest.mark.parametrize("typed, words", TYPED.items())
def test_bash(folder, typed, words):
    given = typed.split(" ")
    (folder / "c.sh").write_text(
        f"{completion.script('bash')}\nCOMP_WORDS=({' '.join(w or repr('') for w in given)})\n"
        f'COMP_CWORD={len(given) - 1}\n_nkisim\necho "${{COMPREPLY[@]}}"\n'
    )
    done = subprocess.run([needs("bash"), "c.sh"], cwd=folder, text=True, capture_output=True)
    assert sorted(done.stdout.split()) == words and not done.stderr


@pytest.mark.parametrize("typed, words", TYPED.items())
def test_fish(folder, typed, words):
    (folder / "c.fish").write_text(completion.script("fish"))
    done = subprocess.run(
        [needs("fish"), "--no-config", "-c", f"source c.fish; complete -C '{typed}'"],
        cwd=folder,
        text=True,
        capture_output=True,
        env={**os.environ, "HOME": str(folder)},
    )
    assert sorted(line.split("\t")[0] for line in done.stdout.splitlines()) == words
    assert not done.stderr


@pytest.mark.parametrize("name", main.COMMANDS)
def test_every_command_hands_out_its_parser(name):
    parser = nkisim.completion.parser_of("nkisim", main.COMMANDS[name][0])
    assert parser.prog == f"nkisim {name}" and parser.format_help()


def test_a_command_without_a_parser_is_found(monkeypatch):
    monkeypatch.setitem(main.COMMANDS, "pages", ("cli.main:pages", "a new command"))
    with pytest.raises(AttributeError, match="pages_parser"):
        completion.program()


class Terminal:
    """A zsh in a terminal of its own, which completes only there."""

    def __init__(self, folder, program: str):
        import pty

        self.said = b""
        self.process, self.stream = pty.fork()
        if not self.process:
            os.chdir(folder)
            os.environ.update(TERM="dumb", HOME=str(folder))
            os.execv(program, [program, "-f", "-i"])

    def type(self, keys: str, until: str) -> None:
        """Type something, and wait until the terminal shows a text."""
        self.said = b""
        os.write(self.stream, keys.encode())
        end = time.monotonic() + 60
        while until.encode() not in self.said:
            assert time.monotonic() < end, self.said
            if select.select([self.stream], [], [], 0.1)[0]:
                self.said += os.read(self.stream, 65536)

    def end(self) -> None:
        """End the shell."""
        os.close(self.stream)
        os.waitpid(self.process, 0)


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_zsh_without_any_setup(folder):
    (folder / "c.zsh").write_text(completion.script("zsh"))
    terminal = Terminal(folder, needs("zsh"))
    try:
        terminal.type("unsetopt zle_bracketed_paste; source ./c.zsh; echo re''ady\n", "ready")
        for typed, words in TYPED.items():
            if len(words) == 1:
                terminal.type(f"{typed}\t", f"{typed.rpartition(' ')[0]} {words[0]}")
            else:
                terminal.type(f"{typed}\t\t", words[-1])
                assert all(word.encode() in terminal.said for word in words)
            terminal.type("\x15", "")  # Ctrl-U: away with the line
    finally:
        terminal.end()
