"""Result types: frozen, typed, standard library only."""
