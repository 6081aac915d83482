"""Turns model weights from one format into another, as a program of its own.

Only this module needs torch for that: `weights` starts it as a child process, so that a worker that
uses the result never loads what made it.
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

__all__ = ["STEPS", "gguf_to_hf", "hf_to_ct2_int8", "main"]

_FILES_BESIDE_CT2: Final = (
    "chat_template.jinja",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
)


def gguf_to_hf(source: Path, target: Path) -> None:
    """Unpack a GGUF file into a folder of bfloat16 safetensors with its tokenizer."""
    import torch  # noqa: PLC0415
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig  # noqa: PLC0415

    folder, file = str(source.parent), source.name
    model = AutoModelForCausalLM.from_pretrained(
        folder,
        gguf_file=file,
        dtype=torch.bfloat16,
        # Without this the weights stay packed, and neither `save_pretrained` nor vLLM takes them.
        quantization_config=GgufConfig(gguf_file=file, dequantize=True),
    )
    model.save_pretrained(str(target))
    AutoTokenizer.from_pretrained(folder, gguf_file=file).save_pretrained(str(target))


def hf_to_ct2_int8(source: Path, target: Path) -> None:
    """Convert a folder of safetensors for CTranslate2, with eight-bit weights."""
    from ctranslate2.converters import TransformersConverter  # noqa: PLC0415

    beside = [name for name in _FILES_BESIDE_CT2 if (source / name).is_file()]
    converter = TransformersConverter(str(source), copy_files=beside)
    converter.convert(str(target), quantization="int8", force=True)


STEPS: Final[dict[str, Callable[[Path, Path], None]]] = {
    "gguf-to-hf": gguf_to_hf,
    "hf-to-ct2-int8": hf_to_ct2_int8,
}


def main(arguments: Sequence[str]) -> int:
    """Run the step that the first argument names, from the second to the third."""
    step, source, target = arguments
    STEPS[step](Path(source), Path(target))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
