"""Extension of Griffe: an `Example:` in a docstring is shown as code, not as a quotation."""

import re

import griffe


class Examples(griffe.Extension):
    """Gives the section `Example:` the name that Griffe's parser knows."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: object) -> None:
        """Renames the section of a class or function."""
        if obj.docstring:
            obj.docstring.value = re.sub(r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE)
