"""A reason why something cannot work, or may not: what, the nearest choice that would, and who says so."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Problem:
    """One reason; without a source it is general knowledge, which warns and never refuses."""

    code: str
    reason: str
    source: str
    nearest: str = ""
    # a warning even though somebody says so: it costs something, but works
    mild: bool = False
    # another stack may be the way out
    other_stack: bool = False

    @property
    def refuses(self) -> bool:
        """The combination is refused, not merely warned about."""
        return bool(self.source) and not self.mild

    def with_nearest(self, nearest: str) -> Problem:
        """The same with a choice that would work."""
        return replace(self, nearest=nearest)

    @property
    def text(self) -> str:
        """Reason, nearest working choice and source, in one line."""
        parts = [self.reason]
        if self.nearest:
            parts.append(f"nearest working choice: {self.nearest}")
        return "; ".join(parts) + (f" (source: {self.source})" if self.source else " (general knowledge, no source)")
