"""`python -m daemon`: the same as `memforestd`."""

from daemon.cli import main

if __name__ == "__main__":
    main()
