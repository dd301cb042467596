"""The catalogue of datasets: the source, the terms and the checksum of each.

It holds the datasets of the paper's experiments and other common ones.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..types import Shape, Texts


@dataclass(frozen=True)
class Description:
    """The facts about a dataset that are known without reading it.

    Attributes
    ----------
    name : str
    kind : {"text", "images", "scene", "cells"}
        Counts of terms in documents; images of one size; one image with many bands; counts of
        genes in cells.
    shape : (samples, features)
        As stored: documents, images, pixels or cells in rows.
    K : int
        The number of classes, which the paper uses as the number of components.
    source, licence : str
        Its official source and its terms.
    preprocessing : str
        How the numbers were processed, and what `load` does to them.
    sha256 : str or None
        Checksum of numbers and classes, by `fingerprint`; None if it is unknown.
    exact : bool
        Whether the official files give the same numbers everywhere; programs that read JPEG may
        round differently.
    image_shape : (rows, columns) or None
        The shape of each image, or of the scene.
    official_files : str
        What to put into the folder of this name, besides ``V.npz`` and ``labels.npy``.
    downloads : tuple of str
        Direct addresses of the official files; empty if there are none.
    download_sha256 : str or None
        The SHA-256 of the only official file, if known.
    class_level : int
        How many folders above an image is the one named after its class; if 0, the class is the
        start of the file name, up to two underscores.
    excluded_folder : str
        A folder of images that is not part of the set.
    variables : tuple of str
        Names of the numbers and of their classes in MATLAB files. Images in such files are stored
        column by column.
    """

    name: str
    kind: str
    shape: Shape
    K: int
    source: str
    licence: str
    preprocessing: str
    sha256: str | None = None
    exact: bool = True
    image_shape: Shape | None = None
    official_files: str = ""
    downloads: Texts = ()
    download_sha256: str | None = None
    class_level: int = 1
    excluded_folder: str = ""
    variables: Texts = ()


_CLUTO = "https://karypis.github.io/glaros/files/sw/cluto/datasets.tar.gz"
_SCENES = "https://www.ehu.eus/ccwintco/index.php?title=Hyperspectral_Remote_Sensing_Scenes"
_UPLOADS = "https://www.ehu.eus/ccwintco/uploads"
_SCENE_TERMS = "public for research, no explicit licence"
_FACES = "photographs of identifiable people"
_ORL = "https://cam-orl.co.uk/facedatabase.html (AT&T Laboratories Cambridge)"
_ORL_TERMS = f"free with credit to AT&T Laboratories Cambridge; {_FACES}"
_COIL = "https://www.cs.columbia.edu/CAVE/software/softlib/coil-20.php (Columbia University)"
# This host supports only http; the checksums of the numbers are exact.
_CAI = "http://www.cad.zju.edu.cn/home/dengcai/Data"
_UPRIGHT = "grey values as they are; images are turned upright"


# Name, documents, terms, classes, and the checksum if known.
_TEXTS = """
tr11 414 6429 9 1e6d51ac2faf1cd85c8d7d0c8c014f506dc5ae9a64c86fe8a7cceeea9c3bf029
tr23 204 5832 6 9043a3a70337fbe10a8bc48f42b9e00479883f273a2ff72a22c74961b42ea28f
tr31 927 10128 7 c9091f270f2ec8540ed45d9cbec1556ea75f0f7c1c9bffed4c771cfef62c7070
tr41 878 7454 10 c09bab73f91e2e4a46a953c7d70e3b8517be5d53787c672df5024d7ed6d1871a
tr45 690 8261 10 d67e019a36159131e62706fba2556245c70e2b1f1a90d6277a0ecf7714161606
re0 1504 2886 13 f62a73ba94647aedddbc6a2680ead2e35903debccc064f9554233a02d187a5ec
wap 1560 8460 20 b43e972ac1badd53644d36f184430fc8a398d0efab138f2088f9b86eb98c9fd1
k1b 2340 21839 6 5ad133718c6fde36cf4f3d384d36e99fb8633fdea1035d082de762515f7677df
classic 7094 41681 4 921a6b0ffa01aa092d59942b68ff53e3d815dad02d6de90890e322d1b21aa8ce
cranmed 2431 41681 2 f9b938d29193f9322e194ea65e20e1f0d256126865b6269854983a74fc30de12
fbis 2463 2000 17 caa270c95305643ddea5f32752244ef12aef6b2b48d3ca423c10211bf475edf7
k1a 2340 21839 20 c6dc301e40035bfb62729c59aaee2db64d9bd3fef27e4f0b53b4b17d8c5d93e8
la1 3204 31472 6 936310e44f5990278fa24406f46faf3e4b93a268074ab12feb7a5c3b0d0ba0ac
la2 3075 31472 6 4b2488b55456ad485bc87c515000b1d79509b333264bab329b21849848272394
la12 6279 31472 6
new3 9558 83487 44
ohscal 11162 11465 10
re1 1657 3758 25
tr12 313 5804 8 99d94b4afc36b11c33e1782f10f1900ee35d52a8a327c22893bf8d6a617c9ed9
"""


def _text(line: str) -> Description:
    """Return a dataset of CLUTO from its line in the table."""
    name, documents, terms, classes, *sha256 = line.split()
    return Description(
        name,
        "text",
        (int(documents), int(terms)),
        int(classes),
        source=f"{_CLUTO} (G. Karypis, CLUTO; it was at http://glaros.dtc.umn.edu)",
        licence="freely downloadable for research, no explicit licence",
        preprocessing="stored as counts; times log(N / df), then documents of unit norm",
        sha256=sha256[0] if sha256 else None,
        official_files=f"{name}.mat and {name}.mat.rclass of that archive",
        downloads=(_CLUTO,),
    )


_ALL = (
    Description(
        "faces94",
        "images",
        (3040, 36000),
        152,
        source="https://cmp.felk.cvut.cz/~spacelib/faces/faces94.html (L. Spacek; it was at "
        "http://cswww.essex.ac.uk/mv/allfaces/faces94.html, University of Essex)",
        licence=f"offered for research, no explicit licence; {_FACES}",
        preprocessing="8-bit grey (ITU-R 601) at full size; without the folder female/gotone",
        sha256="7229d888274b6d2550f1cac569fef5a72fe1a7fcb5b135c9b4cfc290475e7b95",
        image_shape=(200, 180),
        exact=False,
        official_files="the folders female, male and malestaff of the official archive faces94.zip",
        downloads=("https://cmp.felk.cvut.cz/~spacelib/faces/faces94.zip",),
        excluded_folder="female/gotone",
    ),
    Description(
        "georgia_tech",
        "images",
        (750, 3136),
        50,
        source="http://www.anefian.com/research/face_reco.htm (A. Nefian, Georgia Tech)",
        licence=f"free for research, no explicit licence; {_FACES}",
        preprocessing="whole frames of 480 x 640, 8-bit grey, shrunk to 49 x 64 as in the paper",
        image_shape=(49, 64),
        official_files="the folders s01 to s50 of the official archive gt_db.zip",
        downloads=("https://www.anefian.com/research/gt_db.zip",),
        download_sha256="2c4e379ef7c3cc5580eb409673a1e6eb75c5e5a7efd9bf3beb1de8059e835cbf",
    ),
    Description(
        "georgia_tech_crop",
        "images",
        (750, 3136),
        50,
        source="face crops of http://www.anefian.com/research/face_reco.htm (A. Nefian)",
        licence=f"free for research, no explicit licence; {_FACES}",
        preprocessing="the paper's people and size, not its pixels: square crops of the faces "
        "instead of whole frames, 8-bit grey, resized to 49 x 64",
        sha256="0d61860b25999a70c3795da4674033ccf33b8df5407d0acc2f003c58815f9717",
        image_shape=(49, 64),
        official_files="a folder of crops for each person",
    ),
    Description(
        "ck",
        "images",
        (8795, 3136),
        97,
        source="http://www.consortium.ri.cmu.edu/ckagree/ (Cohn-Kanade; sign the agreement there)",
        licence=f"restricted by a signed agreement, not to be passed on; {_FACES}",
        preprocessing="8-bit grey, shrunk to 49 x 64 as in the paper",
        image_shape=(49, 64),
        official_files="the folders S010, S011 and so on of your own licensed copy, each with a "
        "folder of images for each sequence",
        class_level=2,
    ),
    Description(
        "paviau",
        "scene",
        (207400, 103),
        9,
        source=f"{_SCENES} (ROSIS, P. Gamba, University of Pavia)",
        licence=_SCENE_TERMS,
        preprocessing='raw values; pixels are the samples, or samples_are="bands" as in the paper',
        image_shape=(610, 340),
        official_files="PaviaU.mat and PaviaU_gt.mat (or load 'paviau_subset', a window of it)",
        downloads=(
            f"{_UPLOADS}/e/ee/PaviaU.mat",
            f"{_UPLOADS}/5/50/PaviaU_gt.mat",
        ),
        variables=("paviaU", "paviaU_gt"),
    ),
    Description(
        "paviau_subset",
        "scene",
        (11200, 103),
        9,
        source=f"rows 229 to 368, columns 89 to 168 of PaviaU, {_SCENES}",
        licence=_SCENE_TERMS,
        preprocessing="raw values; class 3, gravel, does not occur",
        sha256="f027761d7fe9c4612960d6e35b5a41e75eb4b6afc8e787fa1c44f411ad101889",
        image_shape=(140, 80),
    ),
    Description(
        "indian_pines",
        "scene",
        (21025, 200),
        16,
        source=f"{_SCENES} (AVIRIS, Purdue University)",
        licence=_SCENE_TERMS,
        preprocessing="raw values of the 200 bands that water does not absorb",
        sha256="eb50801c5fc4fa1c384a7d895013fe4f4805f41ae833d9f567b8c2ba37006718",
        image_shape=(145, 145),
        official_files="Indian_pines_corrected.mat and Indian_pines_gt.mat",
        downloads=(
            f"{_UPLOADS}/6/67/Indian_pines_corrected.mat",
            f"{_UPLOADS}/c/c4/Indian_pines_gt.mat",
        ),
        variables=("indian_pines_corrected", "indian_pines_gt"),
    ),
    *map(_text, _TEXTS.strip().splitlines()),
    Description(
        "pbmc68k_reduced",
        "cells",
        (700, 765),
        10,
        source="https://github.com/scverse/scanpy, in its package scanpy (pip install scanpy); a "
        "part of https://www.10xgenomics.com/datasets/fresh-68-k-pbm-cs-donor-a-1-standard-1-1-0",
        licence="scanpy: BSD-3-Clause; 10x Genomics: CC BY 4.0",
        preprocessing="counts, recovered from the logarithms in that file; each cell scaled to "
        "10,000 counts of these genes, then log(1 + x)",
        sha256="6c2dccbbe665bcc839703c2fa90080f104aff6cc2eaaf72cadc47f91d916ab5e",
        official_files="10x_pbmc68k_reduced.h5ad of scanpy",
        downloads=(
            "https://raw.githubusercontent.com/scverse/scanpy/1.11.5/src/scanpy/datasets/"
            "10x_pbmc68k_reduced.h5ad",
        ),
        download_sha256="e71d41e737c941559b7c57c9243bdb3d2c889c2adfdf00e3422ac6b46783676f",
    ),
    Description(
        "orl_112x92",
        "images",
        (400, 10304),
        40,
        source=_ORL,
        licence=_ORL_TERMS,
        preprocessing="8-bit grey as it is",
        sha256="13728b3f57092fd65cc0a6bce9780a3b67360c8aec4c1b7701118b8bc519b57e",
        image_shape=(112, 92),
        official_files="the folders s1 to s40 of the official archive att_faces.zip",
        downloads=("https://www.cl.cam.ac.uk/Research/DTG/attarchive/pub/data/att_faces.zip",),
    ),
    Description(
        "orl_32x32",
        "images",
        (400, 1024),
        40,
        source=f"{_CAI}/FaceData.html (D. Cai's version of {_ORL})",
        licence=_ORL_TERMS,
        preprocessing=_UPRIGHT,
        sha256="e7b91c0c8f851521df2eb353c1abccde15fc3df36da1a169f51597d7f29d2db5",
        image_shape=(32, 32),
        official_files="ORL_32x32.mat",
        downloads=(f"{_CAI}/ORL/ORL_32x32.mat",),
        variables=("fea", "gnd"),
    ),
    Description(
        "yale_32x32",
        "images",
        (165, 1024),
        15,
        source=f"{_CAI}/FaceData.html (D. Cai's version of "
        "http://cvc.cs.yale.edu/cvc/projects/yalefaces/yalefaces.html, Yale University)",
        licence=f"for research; {_FACES}",
        preprocessing=_UPRIGHT,
        sha256="123f42e5adb9c7717e8f28678384a139199741210a4b87ddf586b7d943db0801",
        image_shape=(32, 32),
        official_files="Yale_32x32.mat",
        downloads=(f"{_CAI}/Yale/Yale_32x32.mat",),
        variables=("fea", "gnd"),
    ),
    Description(
        "coil20",
        "images",
        (1440, 16384),
        20,
        source=_COIL,
        licence="for research",
        preprocessing="the processed images of 128 x 128, 8-bit grey as it is",
        image_shape=(128, 128),
        official_files="the images obj1__0.png and so on of the official archive coil-20-proc.zip",
        downloads=(
            "https://www.cs.columbia.edu/CAVE/databases/SLAM_coil-20_coil-100/coil-20/"
            "coil-20-proc.zip",
        ),
        class_level=0,
    ),
    Description(
        "coil20_32x32",
        "images",
        (1440, 1024),
        20,
        source=f"{_CAI}/MLData.html (D. Cai's version of {_COIL})",
        licence="for research",
        preprocessing="values from 0 to 1; images are turned upright",
        sha256="687e5c63a921fde523280d630248effe94b199d50c0d95b8e964ee3c999f0c28",
        image_shape=(32, 32),
        official_files="COIL20.mat",
        downloads=(f"{_CAI}/COIL20/COIL20.mat",),
        variables=("fea", "gnd"),
    ),
    Description(
        "digits",
        "images",
        (1797, 64),
        10,
        source="https://archive.ics.uci.edu/dataset/80 (E. Alpaydin, C. Kaynak), in scikit-learn",
        licence="CC BY 4.0",
        preprocessing="values from 0 to 16 as they are",
        sha256="0301f6d3e9d127445ce440cddaa1675ea47c7a37648f713bf4c6462d51dc79ef",
        image_shape=(8, 8),
    ),
)

#: The description of each dataset, by name.
DATASETS = {description.name: description for description in _ALL}
