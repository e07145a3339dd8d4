"""A fleet's health: hosts looked at, judged by `checks`, compared with their last reading and with one another."""
