"""`regard export`: a model for another engine to serve."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from regard.cli.options.model import DEFAULT_MODEL, Model, open_translator
from regard.cli.output import report
from regard.errors import ConfigurationError

Quantization = Literal["float32", "float16", "bfloat16", "int16", "int8", "int8_float32"]


def export(
    folder: Annotated[Path, typer.Argument(metavar="DIR")],
    to: Literal["regard", "ctranslate2", "huggingface"],
    model: Model = DEFAULT_MODEL,
    quantization: Quantization | None = None,
) -> None:
    """Write a small copy of a model, or a Transformer and its tokenizers in another project's format.

    A copy for Regard is a folder without checkpoints and with smaller weights: float16, half the size, or int8, a
    quarter. In the other formats a recurrent model has no counterpart. Marian normalises after each sublayer, so
    a model with norm = "pre" (the default) goes to ctranslate2 only.

    Args:
        folder: A new folder for the result.
        to: What for: Regard, the engine, or Marian at Hugging Face.
        quantization: How weights are stored; for regard float32, float16 or int8. [default: regard float16,
            ctranslate2 float32]

    Examples:
        regard export --model runs/mine --to regard mine --quantization int8
        regard export --to ctranslate2 es-en-ctranslate2
        regard export --to ctranslate2 es-en-int8 --quantization int8
        regard export --model runs/post-norm --to huggingface es-en-marian
    """
    if quantization is not None and to == "huggingface":
        raise ConfigurationError(
            f"--quantization {quantization}: is not for --to huggingface: leave it out"
        )
    from regard.translation.opening import find
    from regard.translation.runs import Run

    run = Run.open(find(model))
    if to == "regard":
        numbers = quantization or "float16"
        if numbers not in ("float32", "float16", "int8"):
            raise ConfigurationError(
                f"--quantization {numbers}: --to regard stores float32, float16 or int8"
            )
        run.export(folder, numbers)
        report.say(f"wrote {folder}")
        return
    languages = run.configuration.data.target_languages
    if len(languages) > 1:  # a tag is an id, which no exported tokenizer makes of a text
        raise ConfigurationError(
            f"{model}: translates into {', '.join(languages)}, which is chosen by a tag that an exported "
            "tokenizer cannot write: export a model of one target language"
        )
    translator = open_translator(model, "cpu")
    if to == "ctranslate2":
        from regard.interop import ctranslate2

        ctranslate2.export(translator, folder, quantization or "float32")
    else:
        from regard.interop.huggingface import marian_export

        marian_export.export(translator, folder)
    report.say(f"wrote {folder}")
