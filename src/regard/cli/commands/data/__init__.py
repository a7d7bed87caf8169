"""`regard data`: check a corpus, split it, add to it."""

from __future__ import annotations

from regard.cli.commands.data import back_translate, check, split
from regard.cli.group import group
from regard.cli.options.groups import grouped

app = group(
    "Look at data before training on it, part it, add to it.",
    """\b
Examples:
  regard data check corpus.tsv
  regard data split corpus.tsv --out parts
  regard data back-translate news.en --model runs/en-es --out news.tsv""",
)
app.command(epilog=check.EXAMPLES)(grouped(check.check))
app.command("back-translate", epilog=back_translate.EXAMPLES)(
    grouped(back_translate.back_translate)
)
app.command(epilog=split.EXAMPLES)(grouped(split.split))
