"""Position encodings. Attention itself is permutation-equivariant; these introduce order.

- added to the embeddings: `sinusoidal`, `learned`
- applied to queries and keys: `rotary` with `rotary_angles`, scaled by `linear`, `ntk`, `llama3` or `yarn`
- added to the scores as `bias=`: `alibi`, `t5`, `shaw`, `transformer_xl`
"""

from softlook.ops.positions.absolute import learned as learned
from softlook.ops.positions.absolute import sinusoidal as sinusoidal
from softlook.ops.positions.relative_bias import alibi as alibi
from softlook.ops.positions.relative_bias import relative_shift as relative_shift
from softlook.ops.positions.relative_bias import shaw as shaw
from softlook.ops.positions.relative_bias import t5 as t5
from softlook.ops.positions.relative_bias import transformer_xl as transformer_xl
from softlook.ops.positions.rotary import RotaryAngles as RotaryAngles
from softlook.ops.positions.rotary import RotaryScaling as RotaryScaling
from softlook.ops.positions.rotary import linear as linear
from softlook.ops.positions.rotary import llama3 as llama3
from softlook.ops.positions.rotary import ntk as ntk
from softlook.ops.positions.rotary import rotary as rotary
from softlook.ops.positions.rotary import rotary_angles as rotary_angles
from softlook.ops.positions.rotary import yarn as yarn
