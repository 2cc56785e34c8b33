"""Commands that report all mistakes of a command line together."""

from __future__ import annotations

from typing import Any

import click

from swarmtui.model.base import BadInput, Mistakes
from swarmtui.model.parsing import suggest
from swarmtui.processes.exits import redact_given

_MISTAKES = "swarmtui.mistakes"


class CheckedCommand(click.Command):
    """Leaves out options that are not known or whose values are wrong, and reports all of them before it runs."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        args = list(args)
        ctx.meta[_MISTAKES] = found = self._take_out_unusable(ctx, args)
        try:
            return super().parse_args(ctx, list(args))
        except click.UsageError as error:
            options, extra, _ = self.make_parser(ctx).parse_args(list(args))
            if not extra and not isinstance(error, click.BadParameter):
                raise
        ctx.params.clear()
        for param in self.get_params(ctx):
            try:
                param.handle_parse_result(ctx, options, [])
            except click.BadParameter as error:
                name = param.opts[0] if isinstance(param, click.Option) else param.human_readable_name
                found.append(BadInput(redact_given(error.message.rstrip(".")) or _missing(param), key=name))
                ctx.params[str(param.name)] = () if param.nargs == -1 else param.get_default(ctx)
        found += [BadInput("unexpected argument", key=redact_given(word)) for word in extra]
        # Click has a value of its own for an option without a default.
        unset = click.Option(["--unset"]).default
        ctx.params |= {name: None for name, value in ctx.params.items() if value is unset}
        return []

    def invoke(self, ctx: click.Context) -> Any:
        mistakes_of(ctx).raise_all()
        return super().invoke(ctx)

    def _take_out_unusable(self, ctx: click.Context, args: list[str]) -> list[BadInput]:
        """Remove options that are not known, that lack a value or that have one although they take none."""
        found: list[BadInput] = []
        known = [name.lstrip("-") for param in self.get_params(ctx) for name in param.opts]
        while True:
            try:
                self.make_parser(ctx).parse_args(list(args))
            except click.NoSuchOption as error:
                name = error.option_name
                place = next(at for at, word in enumerate(args) if _is_option(word, name))
                hint = suggest(name.lstrip("-"), known, "; ") or f"; see {ctx.command_path} --help"
                found.append(BadInput(f"no such option{hint}", key=redact_given(name), unknown=True))
                # What follows it is its value, unless it looks like an option.
                valued = "=" not in args[place] and args[place + 1 : place + 2] and args[place + 1][:1] != "-"
                del args[place : place + (2 if valued else 1)]
            except click.BadOptionUsage as error:
                name = error.option_name
                given = next((at for at, word in enumerate(args) if word.startswith(f"{name}=")), None)
                found.append(BadInput("needs a value" if given is None else "takes no value", key=name))
                del args[-1 if given is None else given]
            else:
                return found


class CollectingCommand(CheckedCommand):
    """A command whose function adds the mistakes that it finds to `mistakes_of(context)`, and must raise them all."""

    def invoke(self, ctx: click.Context) -> Any:
        return click.Command.invoke(self, ctx)


def mistakes_of(context: click.Context) -> Mistakes:
    """Return what a `CheckedCommand` found."""
    return Mistakes(context.meta.get(_MISTAKES, ()))


def _missing(param: click.Parameter) -> str:
    return (
        f"is missing; one of {', '.join(param.type.choices)}" if isinstance(param.type, click.Choice) else "is missing"
    )


def _is_option(word: str, name: str) -> bool:
    """Tell whether a word of the command line is this option: `--name`, `--name=VALUE`, or `-n` among others."""
    return word.partition("=")[0] == name or (word[:2] != "--" and word[:1] == "-" and name[1:] in word)
