"""What is told to people: a queue of messages on a disk, and the program that delivers them."""
