"""Where things stand. Attention itself sees a set: order comes in through one of these.

- added to the vectors: `sinusoidal`, `learned`
- turning queries and keys: `rotary` by `phases`, stretched by `linear`, `ntk`, `llama3` or `yarn`
- added to the scores, handed in as `bias=`: `alibi`, `t5`, `shaw`, `transformer_xl`
"""

from softlook.ops.positions.biases import alibi as alibi
from softlook.ops.positions.biases import t5 as t5
from softlook.ops.positions.frequencies import Scaling as Scaling
from softlook.ops.positions.frequencies import linear as linear
from softlook.ops.positions.frequencies import llama3 as llama3
from softlook.ops.positions.frequencies import ntk as ntk
from softlook.ops.positions.frequencies import yarn as yarn
from softlook.ops.positions.relative import shaw as shaw
from softlook.ops.positions.relative import shift as shift
from softlook.ops.positions.relative import transformer_xl as transformer_xl
from softlook.ops.positions.rotary import Phases as Phases
from softlook.ops.positions.rotary import phases as phases
from softlook.ops.positions.rotary import rotary as rotary
from softlook.ops.positions.tables import learned as learned
from softlook.ops.positions.tables import sinusoidal as sinusoidal
