"""The catalogue of GPUs, and hardware that is composed of it: `4 x rtx4090`, or what is seen on a host."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Annotated, Any

from pydantic import Field

from nodectl.common.resources import data_dir, table
from nodectl.common.spelling import meant
from nodectl.errors import ProfileError
from nodectl.profiles.load import check_document
from nodectl.profiles.schema import Floor, Hardware, Published, Strict, Version

# of published rates: what a healthy card reaches under any cooler and power limit that it is sold with
_GEMM_PART, _COPY_PART = 0.45, 0.6
# words of a product's name that tell its memory, board or maker, and not its kind
_BOARD = re.compile(r"[- ](SXM\d?|PCIE|PCIe|NVL\d*|HBM\S*|\d+GB?|FHHL|DGXS|LC|Active|AC)\b.*")
_MAKER = re.compile(r"^(NVIDIA|Tesla|Quadro)\s+|\bGeForce\s+", re.IGNORECASE)
_SHORT = re.compile(r"([0-9]{1,3})\s*[x\u00d7]\s*(\w[\w .-]*?)\s*")
_BF16_FROM = (8, 0)
# GRID P4-1Q, NVIDIA A40-48Q, NVIDIA A100-1-5CME: the board, its slices, the memory in GB and the licence
_VGPU = re.compile(r"(?:(?:NVIDIA|GRID|Tesla|Quadro) )*(.+?)-(?:\d-)?\d{1,3}(?:Q|C|A|B\d?|CME)")
_JETSON = re.compile(r".*\(nvgpu\)|(?:NVIDIA )?(?:Orin|Thor|Xavier|Tegra.*)")
# Kepler's and Maxwell's, of which the catalogue has those of desktops and servers
_OLD = re.compile(r"(?:NVIDIA )?(?:(?:Tesla|Quadro) [KM]\d|GeForce (?:GTX? )?[6-9]\d\d(?:M|\b))")
_PASCAL = 6.0
# of what is no GPU that CUDA's libraries of today are for
WORKS_BESIDE = "not judged; network, memory, storage, tuning and launch over gloo work all the same"


class Product(Strict):
    """A GPU as the driver names it, its PCI device ids, and what it can compute."""

    name: str
    compute_capability: Version
    ids: tuple[Annotated[str, Field(pattern=r"^0x[0-9a-f]{4}$")], ...]

    @property
    def kind(self) -> str:
        """The product without memory, board and maker: RTX 4090, A100."""
        return gpu_kind(self.name)


class Model(Strict):
    """Published figures and measured floors of products that share them; see models.yml for the units."""

    names: tuple[str, ...]
    memory_gb: int
    bandwidth: float
    tflops: float | None = None
    pcie: tuple[int, int] | None = None
    watt: int | None = None
    nvlink: tuple[int, int] | None = None
    # NVLink is there only where a bridge is plugged onto two cards
    bridge: bool = False
    mig: int | None = None
    unified: bool = False
    floors: tuple[Floor, ...] = ()
    between: tuple[Floor, ...] = ()

    @property
    def is_module(self) -> bool:
        """It sits on a baseboard, with NVLink and all its PCIe lanes wired."""
        return self.nvlink is not None and not self.bridge


class _Products(Published):
    products: tuple[Product, ...]


class _Models(Published):
    models: tuple[Model, ...]


@cache
def gpu_kind(name: str) -> str:
    """Return a GPU's name without maker, memory and board, which differ within a kind."""
    return _BOARD.sub("", _bare(name.strip()))


def _read(model: type[Any], name: str) -> Any:
    path = data_dir() / "gpus" / name
    return check_document(model, table(path), str(path))


@cache
def _catalogue() -> _Products:
    found: _Products = _read(_Products, "products.yml")
    return found


def products() -> tuple[Product, ...]:
    """Return all GPUs of which the PCI ids are known."""
    return _catalogue().products


@cache
def products_of(device: str) -> tuple[Product, ...]:
    """Return the products of a PCI device id, several where their subsystem tells them apart; () if it is unknown."""
    return tuple(row for row in products() if device in row.ids)


@cache
def _models() -> dict[str, Model]:
    published: _Models = _read(_Models, "models.yml")
    return {name: model for model in published.models for name in model.names}


@cache
def model_of(name: str) -> Model | None:
    """Return the published figures of a GPU by the driver's name, an older driver's too; None if there are none."""
    product = _named(name)
    return _models().get(product.name) if product else None


@cache
def capability_of(model: str) -> str | None:
    """Return the compute capability of a GPU by its name; None if the catalogue has none of its kind."""
    return next((row.compute_capability for row in products() if row.kind == gpu_kind(model)), None)


def _named(name: str) -> Product | None:
    same = [row for row in products() if is_same(name, row.name)]
    # of several, as GTX 1080 Ti and GTX 1080 Ti 10GB, the one that says no more
    return min(same, key=lambda row: (row.name != name, len(row.name)), default=None)


def is_same(seen: str, named: str) -> bool:
    """Return whether the driver's name of a GPU is the one that is named, as older and newer drivers print it."""
    short, whole = seen.removeprefix("NVIDIA "), named.removeprefix("NVIDIA ")
    return whole in (short, short.replace("-SXM-", "-SXM4-")) or (
        whole.startswith(f"{short} ") and gpu_kind(short) == gpu_kind(whole)
    )


@cache
def apart(name: str) -> str:
    """Return why the GPU of this name is held to no figures: a vGPU, a Jetson's, one older than Pascal; else empty."""
    if board := _VGPU.fullmatch(name):
        return f"a vGPU of {board[1]}: a part of it, and no figure of the whole card holds"
    if _JETSON.fullmatch(name):
        return f"the GPU of a Jetson: {WORKS_BESIDE}"
    can = next((row.compute_capability for row in products() if row.kind == gpu_kind(name)), "")
    is_old = float(can) < _PASCAL if can else _OLD.match(name)
    return f"older than Pascal{f' (compute capability {can})' if can else ''}: {WORKS_BESIDE}" if is_old else ""


def _key(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())


def _product(word: str) -> Product:
    """Return the product that a short name means: all of its name, or its kind if no board of it differs."""
    key = _key(_bare(word))
    if exact := next((row for row in products() if row.name == word.strip()), None):
        return exact
    for spelt in (_bare, gpu_kind, _number, lambda name: _key(_bare(name))[: len(key)]):
        found = [row for row in products() if _key(spelt(row.name)) == key]
        known = [row for row in found if model_of(row.name)]
        kinds = {row.kind for row in products() if row.name in _models()}
        if found and not known and spelt is _bare and found[0].kind in kinds:
            continue  # the driver calls so a rare board of a kind that has others
        if len({_figures(row) for row in known or found}) == 1:
            return (known or found)[0]
        if found:
            short = [_bare(row.name).lower().replace(" ", "-") for row in known or found]
            # of the same short name, as Quadro T1000 and NVIDIA T1000, the whole ones
            names = ", ".join(short if len({*short}) > 1 else (repr(row.name) for row in known or found))
            raise ProfileError(f"hardware: {word!r} may be several GPUs", f"say which: {names}")
    if why := apart(word.strip()):
        raise ProfileError(f"hardware: {word!r} is {why}", "`nodectl_hardware: auto` takes it as it is")
    near = meant(key, [_key(_bare(row.name)) for row in products()])
    raise ProfileError(f"hardware: no GPU is called {word!r}", f"{near}`nvidia-smi -L` shows names; or name a profile")


def _bare(name: str) -> str:
    return _MAKER.sub("", name)


def _number(name: str) -> str:
    return re.sub(r"^[RG]TX? ", "", gpu_kind(name))


def _figures(row: Product) -> object:
    model = model_of(row.name)
    return row.name if model is None else model.names


def catalogue_source() -> str:
    """Return where the PCI ids are from."""
    return _catalogue().source


def is_composed(name: str) -> bool:
    """Return whether `name` reads as GPUs and their count, as `4 x rtx4090`; a profile may be called so, and wins."""
    return bool(re.match(r"[0-9]{1,3}\s*(?:[x\u00d7]|$)", name))


def composed(text: str) -> Hardware:
    """Return the hardware of a short form, as `4 x rtx4090` or `2 x a5000 + 1 x rtx3090`.

    ProfileError if a part of it means no GPU, or several.
    """
    counts: Counter[Product] = Counter()
    for part in text.split("+"):
        match = _SHORT.fullmatch(part.strip())
        if match is None or int(match[1]) == 0 or not _key(match[2]):
            raise ProfileError(
                f"hardware {text!r} is no count of GPUs", "say it as `4 x rtx4090`, or `2 x a5000 + 1 x rtx3090`"
            )
        counts[_product(match[2])] += int(match[1])
    parts = [_of_product(product, count) for product, count in counts.items()]
    if len(parts) == 1:
        return parts[0]
    groups = [group for part in parts for group in part.groups]
    document = {
        "description": f"{_counts({gpu_kind(group.model): group.gpus for group in groups})}, composed of the catalogue",
        "gpus": sum(group.gpus for group in groups),
        "mixed": [group.model_dump() for group in groups],
        "sources": {"mixed": "nodectl/data/gpus"},
    }
    return check_document(Hardware, document, f"hardware {text}")


def _counts(numbers: Mapping[str, int]) -> str:
    return " + ".join(f"{number} x {name}" for name, number in numbers.items())


def _of_product(product: Product, count: int) -> Hardware:
    document = {
        "description": f"{count} x {product.kind}, composed of the catalogue",
        "gpus": count,
        "gpu": product.name,
    }
    return check_document(Hardware, completed(document), f"hardware {count} x {product.kind}")


def completed(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a hardware document with what the catalogue knows of its GPU and links, where it says no other itself.

    `gpu` may be a short name alone, as rtx4090. ProfileError if that means none, or several.
    """
    document = {**({"nvswitch": True} if document.get("link") == "nvswitch" else {}), **document}
    given = document.get("gpu")
    if isinstance(given, str):
        given = {"model": _product(given).name}
    name = given.get("model") if isinstance(given, Mapping) else None
    product = next((row for row in products() if row.name == name), None)
    if product is None or not isinstance(given, Mapping):
        return document
    model, count = model_of(product.name), document.get("gpus")
    # what it shares with the processors, the driver does not tell as its own
    memory = {"memory_gb": model.memory_gb} if model and not model.unified else {}
    floors = document.get("floors") or ()
    said = [_measures(floor) for floor in floors if isinstance(floor, Mapping)]
    known = (floor.model_dump(exclude_unset=True) for floor in floors_of(product.name))
    more = [floor for floor in known if _measures(floor) not in said]
    gpu = {"compute_capability": product.compute_capability, **memory, **given}
    one_way = model and not model.nvlink and not model.unified and isinstance(count, int) and count > 1
    links = {"link": "pcie"} if one_way else {}
    return {**links, **document, "gpu": gpu, "floors": [*floors, *more]}


def _measures(floor: Mapping[str, Any]) -> tuple[object, ...]:
    return floor.get("probe"), floor.get("conditions"), floor.get("link_class")


def floors_of(name: str) -> Iterator[Floor]:
    """Yield a GPU's measured floors, and for what has none those that its published figures predict."""
    model, product = model_of(name), _named(name)
    if model is None or product is None:
        return
    yield from (*model.floors, *model.between)
    measured = {(floor.probe, floor.conditions.get("precision")) for floor in model.floors}
    digits = tuple(int(part) for part in product.compute_capability.split("."))
    precision = "bf16" if digits >= _BF16_FROM else "fp16"
    if model.tflops and ("gemm", precision) not in measured:
        yield _predicted("gemm", {"precision": precision}, _GEMM_PART * model.tflops, "TFLOPS", model.tflops)
    if ("hbm", None) not in measured:
        yield _predicted("hbm", {"kernel": "copy"}, _COPY_PART * model.bandwidth, "GB/s", model.bandwidth)


def _predicted(probe: str, conditions: dict[str, str], value: float, unit: str, published: float) -> Floor:
    source = f"predicted: {100 * value / published:.0f} % of the {published:g} {unit} that NVIDIA publishes"
    return Floor(probe=probe, conditions=conditions, value=round(value, 1), unit=unit, source=source, is_predicted=True)


def short_form(names: Sequence[str]) -> str:
    """Return what would pin these GPUs, as `4 x rtx4090`; empty if one of them is not known."""
    counts = Counter(product and product.name for product in map(_named, names))
    return "" if None in counts else _counts({_short_name(str(name)): count for name, count in counts.items()})


def _short_name(name: str) -> str:
    for word in (_key(gpu_kind(name)), _key(_bare(name))):
        with suppress(ProfileError):
            if _product(word).name == name:
                return word
    return name
