"""What the documentation makes of other files: the tutorial of its notebook, the commands of click, MathML of LaTeX."""

import inspect
import re
from pathlib import Path

import click
import cloup
import latex2mathml.converter
import nbconvert
import nbformat

from jobi_tf.cli.main import SETTINGS, cli

ROOT = Path(__file__).resolve().parents[1]
SITE = "https://jobi-tf.github.io/jobi-tf/"
SOURCE = "https://github.com/jobi-tf/jobi-tf/blob/main"


def on_page_markdown(markdown: str, page, **kwargs: object) -> str:
    """Returns the text of a page, with what is generated."""
    match page.file.src_uri:
        case "changelog.md":
            return (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
        case "contributing.md":
            return (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").replace("](docs/", "](")
        case "reference/cli.md":
            return markdown + commands(cli, "jobi-tf")
        case "results/qualitative.md":  # long names of relations may be broken
            return re.sub(r"^\| /\S+", lambda x: x[0].replace("/", "/<wbr>"), markdown, flags=re.MULTILINE)
        case "tutorial.md":
            return markdown + notebook(ROOT / "docs" / "tutorial.ipynb")
    return formulas(markdown.replace("](../examples/", f"]({SOURCE}/examples/"))


def notebook(path: Path) -> str:
    """Returns a notebook with its outputs as Markdown, without its title."""
    text, _ = nbconvert.MarkdownExporter().from_notebook_node(nbformat.read(path, as_version=4))
    text = re.sub(r"<style scoped>.*?</style>", "", text, flags=re.DOTALL)
    text = text.replace('<table border="1" class="dataframe">', "<table>")  # in the style of the site
    text = re.sub(rf"{SITE}(\w+)/", r"\1.md", text)
    return re.sub(r"\A\s*# .*\n", "", text)


def formulas(markdown: str) -> str:
    """Returns the text with $…$ and $$…$$ outside of code as MathML, which browsers show without JavaScript."""

    def convert(found: re.Match) -> str:
        display = "block" if found[1] else "inline"
        return latex2mathml.converter.convert(found[1] or found[2], display=display)

    parts = re.split(r"(^ *```.*?^ *```$|`[^`\n]+`)", markdown, flags=re.MULTILINE | re.DOTALL)
    parts[::2] = [
        re.sub(r"\$\$(.+?)\$\$|\$([^\s$](?:[^$\n]*[^\s$])?)\$", convert, x, flags=re.DOTALL) for x in parts[::2]
    ]
    return "".join(parts)


def commands(command: click.Command, path: str, parent: click.Context | None = None) -> str:
    """Returns the help of a command and of its subcommands as Markdown, with its options in their groups."""
    context = cloup.Context(command, info_name=path.split()[-1], parent=parent, **SETTINGS)
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    lines = [f"{'#' * min(4, 1 + len(path.split()))} {path}", "", "```text", usage, "```", ""]
    lines += paragraphs(command.help or "")
    for title, options in groups(command, context):
        lines += [f"**{title}**", ""]
        lines += [f"`{flags}`\n:   {text}\n" for flags, text in options]
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            lines.append(commands(command.get_command(context, name), f"{path} {name}", context))
    return "\n".join(lines)


def groups(command: click.Command, context: click.Context) -> list[tuple[str, list[tuple[str, str]]]]:
    """Returns the titles of the groups of options, each with the flags and the help of its options."""
    options = [x for x in command.get_params(context) if isinstance(x, click.Option) and not x.hidden]
    parts = {x.title: list(x.options) for x in getattr(command, "option_groups", ())}
    parts["Other options" if parts else "Options"] = [x for x in options if not any(x in y for y in parts.values())]
    rows = {title: [x.get_help_record(context) for x in group] for title, group in parts.items()}
    return [(title, [row for row in found if row]) for title, found in rows.items() if any(found)]


def paragraphs(text: str) -> list[str]:
    """Returns the help of a command as Markdown; a paragraph after \\b is an example."""
    lines = []
    for part in inspect.cleandoc(text).split("\n\n"):
        if part.startswith("\b"):
            lines += ["```bash", *(line.strip() for line in part.split("\n")[1:]), "```", ""]
        else:
            lines += [part, ""]
    return lines
