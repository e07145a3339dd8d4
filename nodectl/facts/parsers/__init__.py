"""Text of a tool to a frozen dataclass, one file a tool; what cannot be read is a ParseError."""
