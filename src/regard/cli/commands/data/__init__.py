"""`regard data`: check a corpus, split it, add to it."""

from regard.cli.commands.data import back_translate, check, split
from regard.cli.group import add, group

app = group(
    "Look at data before training on it, part it, add to it.",
    epilog="""\b
Examples:
  regard data check corpus.tsv
  regard data split corpus.tsv --out parts
  regard data back-translate news.en --model runs/en-es --out news.tsv""",
)
add(app, check.check, back_translate.back_translate, split.split)
