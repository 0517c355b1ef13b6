"""Words a person types. `softlook --help` lists them, and does not wait for torch."""

from softlook.cli.app import main as main
