"""Which softlook this is: said once, here, so that a plain checkout knows it too."""

VERSION = "0.1.0"
