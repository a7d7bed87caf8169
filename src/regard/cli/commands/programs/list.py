"""`regard programs list`: the shipped programs and the sizes of their Transformers."""

from regard.cli.options.checks import check_whole
from regard.cli.output import report


def list_(*, length: int = 8) -> None:
    """List the shipped programs with the sizes of the Transformers that they become.

    Args:
        length: The most tokens of an input.

    Examples:
        regard programs list
        regard programs list --length 16
    """
    check_whole("--length", length, 1, 512)
    from regard.programs import PROGRAMS, ProgramError, plan

    rows = [["", "alphabet", "layers", "heads", "width", "parameters"]]
    for name, program in PROGRAMS.items():
        letters = "".join(map(str, program.alphabet)) + "…" * program.any_tokens
        try:
            sizes = plan(program, length).sizes
        except ProgramError:
            cells = ["-"] * 4
        else:
            each = (sizes.layers, sizes.heads, sizes.width, sizes.parameters)
            cells = [f"{number:,}" for number in each]
        rows.append([name, letters, *cells])
    abouts = ["", *(program.about for program in PROGRAMS.values())]
    for line, about in zip(report.table(rows).splitlines(), abouts, strict=True):
        report.say(f"{line}  {about}".rstrip())
