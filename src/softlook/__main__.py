"""`python -m softlook` is the same as `softlook`."""

from softlook.cli import main

if __name__ == "__main__":
    main()
