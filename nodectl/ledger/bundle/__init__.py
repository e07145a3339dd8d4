"""What a vendor's support asks for of a host with a fault, in one archive, and what of it is kept before a reset."""
