"""What a host of a lab needs in its inventory beside how it is reached: where its wheels and uv come from."""

from nodectl.common.node_paths import LAB_SHARE


def lab_variables() -> dict[str, object]:
    """Variables of every lab host, by name; `nodectl_lab` says that nobody has to be asked about it."""
    return {"nodectl_lab": True, "nodectl_wheelhouse": f"{LAB_SHARE}/wheels", "nodectl_uv": f"{LAB_SHARE}/uv"}
