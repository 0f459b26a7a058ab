"""Which files make up which data set, what they must contain, and where they can be had."""

import dataclasses
import os
from pathlib import Path

from pathgrad._errors import named


@dataclasses.dataclass(frozen=True)
class File:
    """One file, known by its hash.

    Attributes:
        path: Below the data folder.
        digest: Hexadecimal hash of the contents.
        size: In bytes, `None` if unknown.
        address: Where it can be downloaded, `None` if nowhere.
        algorithm: Name of the hash, as `hashlib` knows it.
    """

    path: str
    digest: str
    size: int | None = None
    address: str | None = None
    algorithm: str = "sha256"


@dataclasses.dataclass(frozen=True)
class Source:
    """What is known about a data set without opening it.

    Attributes:
        files: For each part, the files that may hold it, of which one is enough; the first that is there
            is read.
        images: Numbers of images for training, validation and test.
        pixels: Height and width of an image.
        levels: Number of values a pixel takes.
        remark: Licence, and what one has to know before quoting results.
    """

    files: dict[str, tuple[File, ...]]
    images: tuple[int, int, int]
    pixels: tuple[int, int]
    levels: int
    remark: str

    @property
    def addresses(self) -> list[str]:
        """Where the parts can be downloaded; empty if that is impossible."""
        return [f.address for forms in self.files.values() for f in forms if f.address is not None]


def _mnist(part: str, size: int, digest: str, packed_size: int, packed: str) -> tuple[File, File]:
    name = f"binarized_mnist_{part}.amat"
    folder = "http://www.cs.toronto.edu/~larocheh/public/datasets/binarized_mnist"
    return (
        File(f"MNIST_static/{name}", digest, size, f"{folder}/{name}"),
        File(f"MNIST_static/{name}.gz", packed, packed_size),
    )


SOURCES = {
    "mnist": Source(
        files={
            "train": _mnist(
                "train",
                78_400_000,
                "ad693b29f94c14277b095f5238ddefbbdaaae0939789dd2f4f0205278cee3e4d",
                2_196_952,
                "af247bd6075cf9adc4715459dcd5f13eaa99a2c92d8d81379a05da94770b6c0e",
            ),
            "validation": _mnist(
                "valid",
                15_680_000,
                "1de3d397c40fe8eeb33dafd4099a1f665ec01e96d9be234aaeeac8a34930e2e2",
                439_620,
                "533b71bc0198f4d73c54ae5fe6c96fc08dc3cf1b3fae24c5521dbc0452507e38",
            ),
            "test": _mnist(
                "test",
                15_680_000,
                "e6687bfea3f820c174f33b7865140b2a2dd2930ef786f35d45795fc193b5ab2c",
                416_802,
                "32a3c54d03504632bf9f131b4a148c7567aa6fc87da017049b044bdc14c2a0f2",
            ),
        },
        images=(50_000, 10_000, 10_000),
        pixels=(28, 28),
        levels=2,
        remark="Larochelle's fixed binarisation; no licence stated (MNIST: CC BY-SA 3.0)",
    ),
    "omniglot": Source(
        files={
            "all": (
                File(
                    "OMNIGLOT/chardata.mat",
                    # Others have recorded no stronger hash of this file than its MD5. That finds damage,
                    # and no way is known to make another file to a given MD5.
                    "21ecaf34373511aa7691cf2e0802aa3d",
                    address="https://github.com/yburda/iwae/raw/master/datasets/OMNIGLOT/chardata.mat",
                    algorithm="md5",
                ),
            )
        },
        images=(23_000, 1_345, 8_070),
        pixels=(28, 28),
        levels=2,
        remark="the file of the literature; no licence stated (Omniglot: MIT)",
    ),
    "omniglot-rebuilt": Source(
        files={
            "all": (
                File(
                    "OMNIGLOT/omniglot28_rebuilt.mat",
                    "086c4aece91d0a87680f8bed85d80ca2682d858249c74ac2361827685aadd9c8",
                    8_368_607,
                ),
            )
        },
        images=(23_000, 1_345, 8_070),
        pixels=(28, 28),
        levels=2,
        remark="made anew from the Omniglot drawings (MIT); NOT comparable with published numbers",
    ),
    "caltech": Source(
        files={
            "all": (
                File(
                    "Caltech101Silhouettes/caltech101_silhouettes_28_split1.mat",
                    "eb6735e8d84b1850fabc5590124aab1755e90c9fd28123585324398405e1e42a",
                    872_124,
                    "https://people.cs.umass.edu/~marlin/data/caltech101_silhouettes_28_split1.mat",
                ),
            )
        },
        images=(4_100, 2_264, 2_307),
        pixels=(28, 28),
        levels=2,
        remark="Marlin's silhouettes, split 1; no licence stated",
    ),
    "freyfaces": Source(
        files={
            "all": (
                File(
                    "Freyfaces/freyfaces.pkl",
                    "3b69410c6a5fd6e03f09012905168be3712373a094a776f7e58fcd0670d2138a",
                    3_568_521,
                    "https://github.com/riannevdberg/sylvester-flows/raw/master/data/Freyfaces/freyfaces.pkl",
                ),
            )
        },
        images=(1_565, 200, 200),
        pixels=(28, 20),
        levels=256,
        remark="the split depends on a seed; no licence stated",
    ),
}

DATASETS = tuple(SOURCES)

HOW_CHOSEN = f"chosen by {named('data')}, else by the environment variable PATHGRAD_DATA"


def data_folder(given: Path | str | None) -> Path:
    """Return the folder of the data: the given one, else `PATHGRAD_DATA`, else one in the user's cache."""
    chosen = given or os.environ.get("PATHGRAD_DATA")
    if chosen:
        return Path(chosen).expanduser()
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # A relative path in this variable is to be ignored, by the standard that defines it.
    return (cache if cache.is_absolute() else Path.home() / ".cache") / "pathgrad"
