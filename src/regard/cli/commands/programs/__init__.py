"""`regard programs`: programs that run as the weights of a Transformer."""

from regard.cli.commands.programs import compile, list, run
from regard.cli.group import add, group

app = group(
    "Think like a Transformer: programs that become the weights of one.",
    epilog="""\b
Examples:
  regard programs list
  regard programs run histogram "hello"
  regard programs compile reverse --out reverse""",
)
add(app, list.list_, run.run, compile.compile_)
