"""Reading data: files to examples, with errors that name file, line and column."""

from softlook.data.check import check_data as check_data
from softlook.data.data_report import DataReport as DataReport
from softlook.data.data_report import Finding as Finding
from softlook.data.examples import Examples as Examples
from softlook.data.examples import LabeledText as LabeledText
from softlook.data.examples import TaggedText as TaggedText
from softlook.data.examples import TextExample as TextExample
from softlook.data.examples import TextPair as TextPair
from softlook.data.files import find_files as find_files
from softlook.data.readers import read_documents as read_documents
from softlook.data.readers import read_labeled as read_labeled
from softlook.data.readers import read_pairs as read_pairs
from softlook.data.readers import read_sentences as read_sentences
from softlook.data.records import Origin as Origin
from softlook.data.split import Split as Split
from softlook.data.split import data_digest as data_digest
from softlook.data.split import file_digests as file_digests
from softlook.data.split import make_split as make_split
from softlook.data.split import make_validation_split as make_validation_split
from softlook.data.tagged import read_tagged as read_tagged
from softlook.data.tags import find_entities as find_entities
