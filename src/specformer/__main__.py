"""``python -m specformer``."""

from specformer.cli import main

if __name__ == "__main__":
    main()
