"""Inference does not import the training stack."""

import subprocess
import sys

CODE = """
import sys
from softlook.recipes.inference import load_pipeline, translate

assert translate(load_pipeline("dates", device="cpu"), ["3 mars 2022"])[0].text == "2022-03-03"
print(*sorted(name for name in sys.modules if name == "softlook.train" or name.startswith("softlook.train.")))
"""


def test_inference_does_not_import_the_training_stack() -> None:
    result = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == []
