"""The history of each part of the hosts, whatever host it is in: seen, cordoned, returned."""
