"""The pages of docs/start and docs/how-to, run to the letter in a lab: `python -m tests.pages PAGE`."""
