"""Build the distributions, check them, and use the installed package outside this clone. `make dist` calls this script.

python tests/installed_wheel.py FOLDER builds into FOLDER. The wheel is installed with its dependencies, in the versions
of constraints.txt, into an empty environment in a temporary folder. There the package trains, predicts, evaluates and
exports a page from a copy of the example pairs. Then the source distribution replaces the wheel and predicts again.

The environment that runs this script needs the extra "release", whose setuptools builds the distributions. The script
takes some minutes, because it installs PyTorch and compiles kernels.
"""

import os
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
NUM_PAIRS = 300
PACKAGED_FILES = (
    *("pellucid/py.typed", "pellucid/viewer/page/index.html", "pellucid/export/page/model.html"),
    "pellucid/recipes/published_data.toml",
    "pellucid/tuning/space.toml",
)
CLONE_VARIABLES = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
"""Variables through which a process could find the clone or its environment."""


def run_command(*command: object, folder: Path = ROOT, text: str = "") -> str:
    """Run a command without the variables of the clone, require that it succeeds, and return its standard output."""
    environment = {name: value for name, value in os.environ.items() if name not in CLONE_VARIABLES}
    print("$", *command, flush=True)
    result = subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env={**environment, "OMP_NUM_THREADS": "1", "PYTHONUTF8": "1"},
        input=text,
        stdout=subprocess.PIPE,
        encoding="utf-8",
        check=False,
    )
    if result.returncode:
        sys.exit(f"exit code {result.returncode}: {result.stdout}")
    return result.stdout


def build_distributions(folder: Path) -> tuple[Path, Path]:
    """Build and check the wheel and the source distribution; return their paths."""
    run_command(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder)
    (wheel,), (source,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    run_command(sys.executable, "-m", "twine", "check", "--strict", wheel, source)
    run_command(sys.executable, "-m", "check_wheel_contents", wheel)
    names = set(zipfile.ZipFile(wheel).namelist())
    assert names.issuperset(PACKAGED_FILES), set(PACKAGED_FILES) - names
    metadata_folder = f"{'-'.join(wheel.stem.split('-')[:2])}.dist-info/"
    assert all(name.startswith(("pellucid/", metadata_folder)) for name in names), names
    assert f"{metadata_folder}sboms/pellucid.cdx.json" in names, names
    with tarfile.open(source) as archive:
        archive_names = {name.partition("/")[2] for name in archive.getnames()}
    assert archive_names.issuperset({*PACKAGED_FILES, "LICENSE", "pyproject.toml", "README.md"}), archive_names
    return wheel, source


def use_package(scripts: Path, folder: Path) -> None:
    """Train, predict, evaluate and export a page with an installed package."""
    flags = ("--valid", "valid.tsv", "--run", "run", "--size", "tiny", "--training.epochs", "2")
    for _ in range(2):  # the second call finds a finished run
        run_command(scripts / "pellucid", "train", "train.tsv", *flags, folder=folder)
    check_prediction(scripts, folder)
    assert "exact match" in run_command(scripts / "pellucid", "evaluate", "run", "valid.tsv", folder=folder)
    run_command(scripts / "pellucid", "look", "run", "valid.tsv", "--export", "page.html", folder=folder)
    assert (folder / "page.html").stat().st_size > 2**19


def check_prediction(scripts: Path, folder: Path) -> None:
    """Predict, and assert that Python imports the installed package."""
    assert run_command(scripts / "pellucid", "predict", "run", folder=folder, text="1984\n12\n").count("\n") == 2
    program = "import pellucid, sys; print(pellucid.__file__); print(*sys.path, sep='\\n')"
    paths = run_command(scripts / "python", "-c", program, folder=folder)
    assert paths.startswith(str(scripts.parent)) and str(ROOT) not in paths, paths


def main(folder: Path) -> None:
    """Build, install and use both distributions."""
    wheel, source = build_distributions(folder)
    with tempfile.TemporaryDirectory() as temporary:
        folder_outside = Path(temporary).resolve()
        assert ROOT not in folder_outside.parents
        for name, split in (("train", "train"), ("valid", "dev")):
            pairs = (ROOT / "examples" / "roman" / f"{split}.tsv").read_text("utf-8").splitlines(keepends=True)
            (folder_outside / f"{name}.tsv").write_text("".join(pairs[:NUM_PAIRS]), "utf-8", newline="\n")
        venv.create(folder_outside / "venv", with_pip=True)
        scripts = folder_outside / "venv" / ("Scripts" if os.name == "nt" else "bin")
        install = (scripts / "python", "-m", "pip", "install", "--quiet")
        run_command(*install, "--constraint", ROOT / "constraints.txt", f"{wheel}[train]", folder=folder_outside)
        use_package(scripts, folder_outside)
        run_command(*install, "--force-reinstall", "--no-deps", source, folder=folder_outside)
        check_prediction(scripts, folder_outside)
    print("the wheel and the source distribution work without the clone")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
