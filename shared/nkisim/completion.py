"""The script that lets bash, zsh or fish complete a program's commands and flags.

It is made from the parsers of the commands, and needs nothing when it runs.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module

SHELLS = ("bash", "zsh", "fish")


@dataclass(frozen=True)
class Program:
    """What is completed: a program of commands.

    `commands`: each with a line of help; `parsers`: of those that have one; `words`: flag -> words
    that it takes, where its parser does not name them.
    """

    name: str
    commands: Mapping[str, str]
    parsers: Mapping[str, argparse.ArgumentParser]
    words: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def script(self, shell: str) -> str:
        """Return the completion script of "bash", "zsh" or "fish"."""
        return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](self)

    def places(self) -> dict[str, list[str]]:
        """Return the words that a command takes in place of a file, of commands that have such."""
        words = {}
        for name, parser in self.parsers.items():
            for action in parser._actions:
                if not action.option_strings and action.choices:
                    words[name] = [str(word) for word in action.choices]
        return words

    def flags(self) -> dict[str, list[argparse.Action]]:
        """Return the flags of each command that are shown in its help, each spelling once."""
        return {
            name: list({_option(a): a for a in _shown(self.parsers.get(name))}.values())
            for name in self.commands
        }

    def words_of(self, action: argparse.Action) -> list[str]:
        """Return the words that a flag takes, if it takes known ones."""
        if action.choices:
            return [str(word) for word in action.choices]
        return [word for option in action.option_strings for word in self.words.get(option, ())]


def parser_of(package: str, target: str) -> argparse.ArgumentParser:
    """Return the parser of a command, which its module hands out.

    `target` is "module:function", as in the tables of commands. The parser is made by a function
    beside it: `NAME_parser` for NAME, and `parser` for a function that is called `command`.
    """
    module, _, function = target.partition(":")
    made = "parser" if function == "command" else f"{function}_parser"
    parser: argparse.ArgumentParser = getattr(import_module(f"{package}.{module}"), made)()
    return parser


def setup(name: str) -> str:
    """Return the lines of a help that say where the script goes."""
    return f"""put it where your shell looks:
  bash: eval "$({name} completion bash)"   in ~/.bashrc
  zsh:  eval "$({name} completion zsh)"    in ~/.zshrc
  fish: {name} completion fish > ~/.config/fish/completions/{name}.fish"""


def _shown(parser: argparse.ArgumentParser | None) -> Iterator[argparse.Action]:
    """Yield the flags of a parser, and those of its commands if it has some."""
    for action in getattr(parser, "_actions", ()):
        if action.option_strings and action.help != argparse.SUPPRESS:
            yield action
        elif isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from _shown(below)


def _option(action: argparse.Action) -> str:
    """Return the spelling of a flag that is of today: an old one has the same meaning."""
    long = [o for o in action.option_strings if o.startswith("--")]
    return (long or list(action.option_strings))[0]


def _bash(program: Program) -> str:
    name_of = program.name
    values: dict[str, list[str]] = {}
    cases = []
    for name, actions in program.flags().items():
        words = " ".join(_option(action) for action in actions)
        own = program.places().get(name, [])
        cases.append(
            f"    {name}) flags='{words}'" + (f" words='{' '.join(own)}'" if own else "") + " ;;"
        )
        for action in actions:
            if program.words_of(action):
                values.setdefault(_option(action), program.words_of(action))
    valued = [f"    {option}) words='{' '.join(words)}' ;;" for option, words in values.items()]
    return f"""_{name_of}() {{
  local cur="${{COMP_WORDS[COMP_CWORD]}}" prev="${{COMP_WORDS[COMP_CWORD-1]}}" flags='' words=''
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W '{" ".join(program.commands)}' -- "$cur")); return
  fi
  case "$prev" in
{chr(10).join(valued)}
  esac
  if [ -n "$words" ]; then COMPREPLY=($(compgen -W "$words" -- "$cur")); return; fi
  case "${{COMP_WORDS[1]}}" in
{chr(10).join(cases)}
  esac
  case "$cur" in
    -*) COMPREPLY=($(compgen -W "$flags" -- "$cur")); return ;;
  esac
  if [ -n "$words" ]; then COMPREPLY=($(compgen -W "$words" -- "$cur")); return; fi
  COMPREPLY=($(compgen -f -- "$cur"))
}}
complete -o filenames -F _{name_of} {name_of}"""


def _zsh(program: Program) -> str:
    """Return the script of bash, which zsh runs with its own bridge."""
    return (
        "(( $+functions[compdef] )) || { autoload -Uz compinit && compinit; }\n"
        "autoload -Uz bashcompinit && bashcompinit\n" + _bash(program)
    )


def _fish(program: Program) -> str:
    first = f"complete -c {program.name}"
    lines = [f"{first} -e"]
    for name, text in program.commands.items():
        lines.append(f"{first} -n __fish_use_subcommand -f -a {name} -d {_quoted(text)}")
    for name, taken in program.places().items():
        lines.append(
            f"{first} -n '__fish_seen_subcommand_from {name}' -f -a {_quoted(' '.join(taken))}"
        )
    for name, actions in program.flags().items():
        for action in actions:
            option = _option(action)
            kind = f"-l {option[2:]}" if option.startswith("--") else f"-o {option[1:]}"
            values = program.words_of(action)
            words = f" -x -a {_quoted(' '.join(values))}" if values else ""
            lines.append(
                f"{first} -n '__fish_seen_subcommand_from {name}' {kind}{words}"
                f" -d {_quoted(_short(action.help or ''))}"
            )
    return "\n".join(lines)


def _short(text: str) -> str:
    """Return the first clause of a flag's help."""
    first = text.split(";")[0].split(":")[0].split(" (")[0].split(". ")[0]
    return first.replace("%%", "%")


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
