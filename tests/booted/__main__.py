"""`python -m tests.booted down`: take away what killed sessions of booted systems left."""

from tests.booted.conftest import STATE
from tests.booted.sessions import clear_dead

if __name__ == "__main__":
    clear_dead(STATE / "booted")
