"""Where slow tests find DeepSpeed, Transformers and Accelerate beside PyTorch: a copy of the lab share's venv."""

import fcntl
import os
import shutil
import subprocess
from functools import lru_cache
from pathlib import Path

import pytest

from tests.torch_venv import torch_venv

_WANTED = ("deepspeed==0.19.8", "transformers==5.23.0", "accelerate==1.15.0")
_MADE = "nodectl-training.txt"


@lru_cache(maxsize=1)
def training_venv() -> Path:
    """Its folder beside the one that it is a copy of, made once; skips the test where no index has the packages."""
    source = Path(torch_venv())
    if source.parent.name != "lab-share":
        pytest.skip("the lab's share holds no environment with torch")
    folder = source.with_name("training")
    with source.with_name("training.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        made = folder / _MADE
        if made.is_file() and made.read_text() == "\n".join(_WANTED):
            return folder
        shutil.rmtree(folder, ignore_errors=True)
        # links to the same files: torch alone has 800 MB, and the installer writes none anew
        shutil.copytree(source, folder, symlinks=True, copy_function=os.link)
        uv, wheels = source.with_name("uv"), source.with_name("wheels")
        argv = [str(uv), "pip", "install", "--quiet", "--python", str(folder / "bin/python")]
        argv += ["--no-build-isolation", "--find-links", str(wheels), "packaging", "wheel", *_WANTED]
        env = {**os.environ, "DS_BUILD_OPS": "0"}
        done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
        if done.returncode:
            shutil.rmtree(folder, ignore_errors=True)
            pytest.skip(f"no DeepSpeed here: {done.stderr.strip()[-300:]}")
        # PyPI's is for CUDA and cannot be imported; Transformers imports what is there
        subprocess.run([str(uv), "pip", "uninstall", "--quiet", "--python", argv[5], "torchvision"], check=False)
        made.write_text("\n".join(_WANTED))
    return folder
