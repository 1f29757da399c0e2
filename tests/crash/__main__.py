"""`python -m tests.crash`: power cuts by the thousand, with progress and a summary."""

from tests.crash.run import main

if __name__ == "__main__":
    main()
