"""The class of the commands that take options."""

import click


class Command(click.Command):
    """A command that refuses an option that is given twice, such as `--joint --no-joint`, instead of taking one."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        """Parses the arguments."""
        _, _, order = self.make_parser(context).parse_args(list(args))
        for option in order:
            if isinstance(option, click.Option) and not option.multiple and order.count(option) > 1:
                names = "/".join([*option.opts, *option.secondary_opts])
                raise click.UsageError(f"expected {names} at most once, got it {order.count(option)} times", context)
        return super().parse_args(context, args)
