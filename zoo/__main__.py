"""`python -m zoo` is the command `zoo`."""

from zoo.working_folder import forget_working_folder

forget_working_folder()

from zoo.cli import main  # noqa: E402

if __name__ == "__main__":
    main()
