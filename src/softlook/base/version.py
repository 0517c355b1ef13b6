"""The version of softlook."""

VERSION = "0.1.0"
