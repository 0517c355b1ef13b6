"""What the studio shows: a run, a model, a table or a trace, opened for it."""

from softlook.recipes.studio.live_model import live_model as live_model
from softlook.recipes.studio.opening import open_studio as open_studio
