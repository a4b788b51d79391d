"""The `signoff` command. One verb a file; a verb's function is its documentation."""

import sys

import typer

from signoff.cli import audit, runs
from signoff.cli.demo import demo
from signoff.cli.migrate import migrate
from signoff.cli.replay_check import replay_check
from signoff.cli.worker import worker
from signoff.errors import SignoffError

app = typer.Typer(
    name="signoff",
    help="Durable AI agents whose dangerous actions wait for a person's sign-off.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command()(demo)
app.command()(migrate)
app.command("replay-check")(replay_check)
app.command()(worker)
app.add_typer(runs.app)
app.add_typer(audit.app)


def main() -> None:
    """Run the command line. What a person can mend is one line on stderr and exit code 1; anything else a traceback."""
    try:
        app()
    except (SignoffError, OSError) as error:
        print(f"signoff: {error}", file=sys.stderr)
        sys.exit(1)
