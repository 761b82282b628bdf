"""`python -m parties`: the same as the `fsl-async` command."""

from parties.commands.application import main

if __name__ == "__main__":
    main()
