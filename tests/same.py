"""`make same`: compare the training losses of every model with those of another commit, bit for bit.

Every tiny model is trained for 20 steps from a fixed seed, with the working tree and with another commit, on the same
machine, in separate processes with one thread.

    python -m tests.same            # the working tree against the last commit
    python -m tests.same BASE       # or against any other
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).parents[1]
STEPS = 20
CHILD = """
import json, torch
from tests.models.tiny import TINY
from tests.same import losses
torch.set_num_threads(1)
torch.use_deterministic_algorithms(True)
print(json.dumps({name: losses(tiny) for name, tiny in TINY.items()}))
"""


def losses(tiny: Any) -> list[str]:
    """Return the losses of a tiny model in training, as hexadecimal floats."""
    model = tiny.build().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    history = []
    for step in range(STEPS):
        torch.manual_seed(step)
        optimizer.zero_grad()
        loss = tiny.ask(model, tiny.inputs(seed=step)).square().mean()
        loss.backward()
        optimizer.step()
        history.append(loss.item().hex())
    return history


def run_losses(tree: Path) -> dict[str, list[str]]:
    """Return the losses with the code in `tree`, from a separate process."""
    paths = os.pathsep.join([str(tree / "src"), str(tree)])
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    child = subprocess.run(
        [sys.executable, "-c", CHILD], cwd=tree, env=environment, capture_output=True, text=True, check=False
    )
    if child.returncode:
        raise SystemExit(f"the code in {tree} does not run:\n{child.stderr}")
    return json.loads(child.stdout.splitlines()[-1])


def compare(new: dict[str, list[str]], old: dict[str, list[str]]) -> list[str]:
    """Return the differences, one line each."""
    differences = []
    for name in dict.fromkeys([*new, *old]):
        if name not in old or name not in new:
            differences.append(f"{name}: only {'new' if name in new else 'old'}")
        elif new[name] != old[name]:
            pairs = zip(new[name], old[name], strict=False)
            step = next((i for i, (one, other) in enumerate(pairs) if one != other), min(len(new[name]), STEPS))
            one, other = (float.fromhex(history[step]) for history in (new[name], old[name]))
            differences.append(f"{name}: from step {step + 1} on, {other!r} (old), {one!r} (new)")
    return differences


def main() -> None:
    base = sys.argv[1] if len(sys.argv) > 1 else "HEAD"
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "old"
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", tree, base], cwd=ROOT, check=True)
        try:
            old = run_losses(tree)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", tree], cwd=ROOT, check=True)
    new = run_losses(ROOT)
    differences = compare(new, old)
    sys.stderr.write("\n".join(differences) + "\n" if differences else "")
    if any("only" not in line for line in differences):
        raise SystemExit(f"{len(differences)} of {len(new)} models differ from {base}")
    sys.stdout.write(f"{len(new)} models, {STEPS} steps each: the same as {base}, bit for bit\n")


if __name__ == "__main__":
    main()
