"""From files to examples: text, parallel text and labelled text, with errors that point at file, line and column."""

from softlook.data.check import check as check
from softlook.data.digest import data_digest as data_digest
from softlook.data.digest import file_digests as file_digests
from softlook.data.examples import Examples as Examples
from softlook.data.examples import Labelled as Labelled
from softlook.data.examples import Pair as Pair
from softlook.data.examples import Text as Text
from softlook.data.facts import Facts as Facts
from softlook.data.facts import Finding as Finding
from softlook.data.files import find as find
from softlook.data.records import Origin as Origin
from softlook.data.split import Split as Split
from softlook.data.split import make_split as make_split
from softlook.data.tasks import documents as documents
from softlook.data.tasks import labelled as labelled
from softlook.data.tasks import pairs as pairs
from softlook.data.tasks import sentences as sentences
