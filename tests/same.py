"""`make same`: has a change of the code changed any number?

Every small model is trained for 20 steps from a fixed seed, with the code as it is and with the code of another
commit, on the same machine, in fresh processes with one thread; the losses are compared bit for bit.

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
    """The losses of a small model as it trains, each number written so that no bit is lost."""
    model = tiny.build().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    told = []
    for step in range(STEPS):
        torch.manual_seed(step)
        optimizer.zero_grad()
        loss = tiny.ask(model, tiny.inputs(seed=step)).square().mean()
        loss.backward()
        optimizer.step()
        told.append(loss.item().hex())
    return told


def told_by(tree: Path) -> dict[str, list[str]]:
    """The losses by the code in `tree`, from a process of its own."""
    paths = os.pathsep.join([str(tree / "src"), str(tree)])
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    child = subprocess.run(
        [sys.executable, "-c", CHILD], cwd=tree, env=environment, capture_output=True, text=True, check=False
    )
    if child.returncode:
        raise SystemExit(f"the code in {tree} does not run:\n{child.stderr}")
    return json.loads(child.stdout.splitlines()[-1])


def compare(ours: dict[str, list[str]], theirs: dict[str, list[str]]) -> list[str]:
    """What differs, a sentence each."""
    told = []
    for name in dict.fromkeys([*ours, *theirs]):
        if name not in theirs or name not in ours:
            told.append(f"{name}: only {'now' if name in ours else 'then'}")
        elif ours[name] != theirs[name]:
            pairs = zip(ours[name], theirs[name], strict=False)
            step = next((i for i, (one, other) in enumerate(pairs) if one != other), min(len(ours[name]), STEPS))
            one, other = (float.fromhex(told[step]) for told in (ours[name], theirs[name]))
            told.append(f"{name}: from step {step + 1} on, {other!r} then and {one!r} now")
    return told


def main() -> None:
    base = sys.argv[1] if len(sys.argv) > 1 else "HEAD"
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "then"
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", tree, base], cwd=ROOT, check=True)
        try:
            theirs = told_by(tree)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", tree], cwd=ROOT, check=True)
    ours = told_by(ROOT)
    differences = compare(ours, theirs)
    sys.stderr.write("\n".join(differences) + "\n" if differences else "")
    if any("only" not in line for line in differences):
        raise SystemExit(f"{len(differences)} of {len(ours)} models differ from {base}")
    sys.stdout.write(f"{len(ours)} models, {STEPS} steps each: the same as {base}, bit for bit\n")


if __name__ == "__main__":
    main()
