"""The articles' tables, measured on the hosts at hand."""
