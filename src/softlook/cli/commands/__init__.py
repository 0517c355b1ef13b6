"""The commands, one file each. A module is imported when its command runs."""
