"""Ask trained models: the words of the command line, in Python."""

from softlook.recipes.aligning import Alignment as Alignment
from softlook.recipes.aligning import pharaoh as pharaoh
from softlook.recipes.continuing import Continued as Continued
from softlook.recipes.continuing import Manner as Manner
from softlook.recipes.continuing import generate as generate
from softlook.recipes.continuing import stream as stream
from softlook.recipes.languages import between as between
from softlook.recipes.opened import Opened as Opened
from softlook.recipes.opened import Question as Question
from softlook.recipes.opened import opened as opened
from softlook.recipes.reading import Judgement as Judgement
from softlook.recipes.reading import classify as classify
from softlook.recipes.reading import embed as embed
from softlook.recipes.translating import Candidate as Candidate
from softlook.recipes.translating import Translation as Translation
from softlook.recipes.translating import translate as translate
