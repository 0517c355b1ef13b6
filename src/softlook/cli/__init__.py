"""The command line. `softlook --help` does not import torch."""

from softlook.cli.main import main as main
