"""What is gone on with was begun by such a nodectl, on this fleet, and on the machines that are there now."""

from dataclasses import replace
from typing import Any

import pytest

from nodectl.errors import UsageError
from nodectl.ledger.accept.store import refuse_strange, refuse_untried
from nodectl.model.acceptance import HostAcceptance, NodeVerdict, Part, PartKind
from tests.ledger.accept.made import acceptance, done, means

_BEGUN = acceptance(done("health"), done("tcp"))
_GPU = Part(PartKind.GPU, "GPU-1", "node02", place="GPU 3")


@pytest.mark.parametrize(
    ("edit", "why"),
    [
        ({"fleet": "other.yml"}, "was begun with -i other.yml, and this is -i inventory.yml"),
        ({"level": "thorough"}, "its level 'thorough'"),
        ({"steps": ()}, "the list of its steps"),
        ({"steps": (done("tcp"), done("health"))}, "the list of its steps"),
        ({"steps": (done("health"), done("health"))}, "the list of its steps"),
        ({"steps": (done("health"), done("of tomorrow"))}, "the list of its steps"),
        ({"steps": (replace(done("health"), planned_s=float("nan")),)}, "a time in it"),
    ],
)
def test_what_was_not_begun_so_is_refused(edit: dict[str, Any], why: str) -> None:
    refuse_strange(_BEGUN, "inventory.yml")
    with pytest.raises(UsageError) as refused:
        refuse_strange(replace(_BEGUN, **edit), "inventory.yml")
    assert why in refused.value.message


def test_a_part_that_was_not_tried_is_none_that_is_accepted() -> None:
    host = HostAcceptance("node02", NodeVerdict.ACCEPTED, parts=(_GPU,))
    begun = replace(_BEGUN, hosts=(host,))
    now = means("node02", parts=(replace(_GPU, place="GPU 4"),))
    refuse_untried(begun, now)
    refuse_untried(begun, means("node02"))  # does not answer: the steps will say so
    other = means("node02", parts=(_GPU, replace(_GPU, id="GPU-2")))
    with pytest.raises(UsageError, match="node02 has the gpu GPU-2 now, which was not tried"):
        refuse_untried(begun, other)
    refuse_untried(replace(begun, hosts=(replace(host, left_after="health"),)), other)
    refuse_untried(replace(begun, hosts=(replace(host, parts=()),)), other)
