"""Programs for who works on nodectl; each says its use."""
