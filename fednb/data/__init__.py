"""Named data sets as arrays, and where they are looked for.

`load(name)` tries, in this order: `<name>.npz` in the folder `root` or `$FEDNB_DATA`;
torchvision's (for the medical sets, MedMNIST's) files in `$FEDNB_CACHE` or
`~/.cache/fednb`; a download into that cache, which needs `fednb[papers]`. If a set
cannot be found, a FileNotFoundError says what was looked for, where, and what to do.
`digits` is embedded in scikit-learn and needs neither file nor network.

An npz holds `train_images`, `train_labels`, `test_images`, `test_labels`: uint8 images,
N x H x W (grey) or N x H x W x 3. Contents are verified: an npz by the checksum of the
file, what a package reads by the number of images and, where it is known, the checksum
of the arrays. A wrong file is refused unless `FEDNB_UNVERIFIED=1` accepts it. Whatever
makes a set less than the official one, "unverified" included, stands in its `note`, to
be shown beside every result.

Two large federations of users and their photographs, `landmarks` and `inaturalist`,
come as lists and folders of images: `published` says which files go where, and
`as_published` is the law that deals them.

The pixels of a large set are unpacked once, into `pixels` in the cache, and mapped from
there: all processes of a sweep share one copy in memory.

Data that are drawn rather than found come with their clients, for each client has a law
of its own: `regression`, `synthetic`, `domains` and `shifted` give a Dataset and a
Partition. Written as a call in a text, `load("synthetic(alpha=1, beta=1, seed=3)")`,
they are data sets like any other, and `as_generated` is the law that deals them.
"""

from .catalogue import OFFICIAL, PUBLISHED, names
from .dataset import Dataset, fingerprint, from_arrays
from .drawn import (
    GENERATORS,
    as_generated,
    domains,
    generate,
    regression,
    shifted,
    synthetic,
)
from .loading import load, with_official_tests
from .official import at_hand
from .photographs import as_published, published

__all__ = [  # in the order of the page about them
    "load",
    "names",
    "at_hand",
    "Dataset",
    "from_arrays",
    "fingerprint",
    "published",
    "as_published",
    "regression",
    "synthetic",
    "domains",
    "shifted",
    "generate",
    "as_generated",
    "with_official_tests",
    "OFFICIAL",
    "PUBLISHED",
    "GENERATORS",
]
