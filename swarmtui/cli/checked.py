"""Commands that report all mistakes of a command line together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import click

from swarmtui.model.base import BadInput, Mistakes
from swarmtui.model.parsing import suggest
from swarmtui.processes.exits import redact_given

S = TypeVar("S")
T = TypeVar("T")

_MISTAKES = "swarmtui.mistakes"


class CheckedCommand(click.Command):
    """Leaves out options that are not known or whose values are wrong, and reports all of them before it runs."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        args = list(args)
        found = ctx.meta.setdefault(_MISTAKES, [])  # with those of the group
        found += self._take_out_unusable(ctx, args)
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
                several = param.nargs == -1 or param.multiple
                ctx.params[str(param.name)] = () if several else param.get_default(ctx)
        # Click has a value of its own for an option without a default.
        unset = click.Option(["--unset"]).default
        ctx.params |= {name: None for name, value in ctx.params.items() if value is unset}
        if self.allow_extra_args:  # the command of a group, and what follows it
            return extra
        found += [BadInput("unexpected argument", key=redact_given(word)) for word in extra]
        return []

    def invoke(self, ctx: click.Context) -> Any:
        if ctx.invoked_subcommand is None:
            mistakes_of(ctx).raise_all()
        return super().invoke(ctx)

    def _take_out_unusable(self, ctx: click.Context, args: list[str]) -> list[BadInput]:
        """Remove options that are not known, that lack a value or that have one although they take none."""
        found: list[BadInput] = []
        known = [name.lstrip("-") for param in self.get_params(ctx) for name in param.opts]
        commands = self.list_commands(ctx) if isinstance(self, click.Group) else ()
        while True:
            try:
                self.make_parser(ctx).parse_args(list(args))
            except click.NoSuchOption as error:
                name = error.option_name
                place = next(at for at, word in enumerate(args) if _is_option(word, name))
                hint = suggest(name.lstrip("-"), known, "; ") or f"; see {ctx.command_path} --help"
                found.append(BadInput(f"no such option{hint}", key=redact_given(name), unknown=True))
                # What follows it is its value, unless it looks like an option or is a command.
                after = "" if "=" in args[place] else "".join(args[place + 1 : place + 2])
                valued = after and after[0] != "-" and after not in commands
                del args[place : place + (2 if valued else 1)]
            except click.BadOptionUsage as error:
                name = error.option_name
                given = next((at for at, word in enumerate(args) if word.startswith(f"{name}=")), None)
                found.append(BadInput("needs a value" if given is None else "takes no value", key=name))
                del args[-1 if given is None else given]
            else:
                return found


class CheckedGroup(click.Group, CheckedCommand):
    """A group that reports the mistakes of its own options together with those of its command."""

    command_class = CheckedCommand

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            hint = suggest(args[0], self.list_commands(ctx), "; ") or f"; see {ctx.command_path} --help"
            mistakes = mistakes_of(ctx)
            mistakes.found.append(BadInput(f"no such command{hint}", key=redact_given(args[0])))
            mistakes.raise_all()
            raise


class CollectingCommand(CheckedCommand):
    """A command whose function adds the mistakes that it finds to `mistakes_of(context)`, and must raise them all."""

    def invoke(self, ctx: click.Context) -> Any:
        return click.Command.invoke(self, ctx)


def mistakes_of(context: click.Context) -> Mistakes:
    """Return what a `CheckedCommand` found."""
    return Mistakes(context.meta.get(_MISTAKES, ()))


def check_each(check: Callable[[S], T], *given: S | None) -> list[T]:
    """Return what `check` makes of arguments of a `CollectingCommand`; raise what it refuses, and all found before.

    One that is None was found to be missing.
    """
    mistakes = mistakes_of(click.get_current_context())
    found = [mistakes.catch(check, one) for one in given if one is not None]
    mistakes.raise_all()
    return cast("list[T]", found)


def _missing(param: click.Parameter) -> str:
    return (
        f"is missing; one of {', '.join(param.type.choices)}" if isinstance(param.type, click.Choice) else "is missing"
    )


def _is_option(word: str, name: str) -> bool:
    """Tell whether a word of the command line is this option: `--name`, `--name=VALUE`, or `-n` among others."""
    return word.partition("=")[0] == name or (word[:2] != "--" and word[:1] == "-" and name[1:] in word)
