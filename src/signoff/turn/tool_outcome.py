"""Outputs of hooks, as JSON."""

from signoff.domain.jsonvalue import Json, normalise


def plain(output: object) -> Json:
    """The output of a hook, which its runner has made JSON and bounded already."""
    return normalise(output, what="a hook's output", bytes_max=2**31)
