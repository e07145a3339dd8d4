"""What the articles claim, what is wrong in it, and which command measures it here."""

from __future__ import annotations

import click

from nodectl.cli.app import App
from nodectl.cli.bench.shared import csv_option, show
from nodectl.cli.terminal import terminal_width


@click.command()
@csv_option
@click.argument("article", type=int, required=False)
@click.pass_obj
def claims(app: App, article: int | None) -> None:
    """Show what the articles claim, figure by figure, what is true of it, and what measures it; no host is asked.

    ARTICLE is a number; its other numbers, and where they are in nodectl or why they are not, come with it.
    """
    from nodectl.articles import claims as known
    from nodectl.articles.claims_document import article_text, claims_document, claims_lines, claims_text

    chosen = dict(known.articles()) if article is None else {article: known.article(article)}
    width = terminal_width()
    text = claims_text(chosen, width) if article is None else article_text(article, chosen[article], width)
    show(app, "bench-claims", claims_document(chosen), text, claims_lines(chosen))
