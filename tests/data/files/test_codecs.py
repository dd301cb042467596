import json
import struct
import subprocess
import sys
import zlib

import numcodecs
import numpy as np
import pytest
import zarr
from zarr.codecs import BloscCodec, GzipCodec, ZstdCodec

from conenmf import open_data
from conenmf.data.files import codecs
from conenmf.errors import FileFormatError, ReadError

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # Zarr's, about its own codecs

X = np.random.default_rng(0).integers(1, 9, (60, 20)).astype("f8")
SIZES = struct.pack("<II", 0x41000000, 0x40000000)  # of a block, and of the chunk


def stores(folder, **options):
    """A store of one array, and the file of its only chunk."""
    zarr.create_array(folder / "a.zarr", data=X, **{"chunks": X.shape} | options)
    files = [place for place in (folder / "a.zarr").rglob("*") if place.is_file()]
    (chunk,) = (file for file in files if not file.name.startswith((".z", "zarr.json")))
    return folder / "a.zarr", chunk


BLOSC = {
    "version 2": {"zarr_format": 2, "compressors": numcodecs.Blosc("lz4")},
    "a filter": {"zarr_format": 2, "filters": [numcodecs.Blosc("zstd")], "compressors": None},
    "version 3": {"compressors": BloscCodec(cname="lz4")},
    "numcodecs": {"compressors": [{"name": "numcodecs.blosc", "configuration": {"cname": "lz4"}}]},
    "a shard": {"chunks": (30, 20), "shards": (60, 20), "compressors": BloscCodec(cname="lz4")},
    "under gzip": {"compressors": [BloscCodec(cname="lz4"), GzipCodec()]},
}


def test_blosc_that_does_not_hold_what_it_says(tmp_path):
    """In a process of its own, which it must not end."""
    for name, options in BLOSC.items():
        (tmp_path / name).mkdir()
        path, chunk = stores(tmp_path / name, **options)
        assert open_data(path).shape == (20, 60)
        content = chunk.read_bytes()
        is_packed = content[:2] == b"\x1f\x8b"
        content = bytearray(zlib.decompress(content, 31) if is_packed else content)
        content[8:16] = SIZES
        chunk.write_bytes(_gzip(bytes(content)) if is_packed else content)
    program = """
import sys
from conenmf import open_data
from conenmf.errors import ReadError
for path in sys.argv[1:]:
    try:
        open_data(path)
    except ReadError as problem:
        print("does not hold what its header claims" in str(problem))
"""
    paths = [tmp_path / name / "a.zarr" for name in BLOSC]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, *paths], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, "True\n" * len(paths)), done.stderr


def _gzip(content):
    packer = zlib.compressobj(wbits=31)
    return packer.compress(content) + packer.flush()


CHUNK = numcodecs.Blosc("lz4", blocksize=1024).encode(np.arange(2000.0))


@pytest.mark.parametrize(
    ("at", "value"),
    [
        (4, 1 << 30),  # the size of the numbers
        (8, 0),  # of a block
        (8, 1 << 30),
        (8, 1),  # more blocks than have a place
        (12, len(CHUNK) - 1),  # of the chunk
        (12, len(CHUNK) + 1),
        (16, 0),  # where a block begins
        (16, len(CHUNK)),
        (16, 1 << 31),
    ],
)
def test_sizes_in_a_chunk_of_blosc(at, value):
    codecs._check_blosc(memoryview(CHUNK), most=1 << 20)
    changed = bytearray(CHUNK)
    changed[at : at + 4] = struct.pack("<I", value)
    with pytest.raises(FileFormatError, match=r"does not hold|claims"):
        codecs._check_blosc(memoryview(changed), most=1 << 20)


@pytest.mark.parametrize("numbers", [np.arange(999.0), np.zeros(999), np.ones(3), np.ones(0)])
@pytest.mark.parametrize("level", [0, 5])
def test_every_chunk_that_blosc_writes_is_accepted(numbers, level):
    for name in numcodecs.blosc.list_compressors():
        for shuffle in range(3):
            chunk = numcodecs.Blosc(name, level, shuffle).encode(numbers)
            codecs._check_blosc(memoryview(bytes(chunk)), most=1 << 20)
    random = np.random.default_rng(0).bytes(4000)
    codecs._check_blosc(memoryview(numcodecs.Blosc("lz4").encode(random)), most=1 << 20)


def test_truncated_chunks():
    for check in (codecs._check_blosc, codecs._check_lz4, codecs._check_texts):
        with pytest.raises(FileFormatError):
            check(memoryview(b"\1\0\0"), most=100)


BOMBS = {
    "lz4": lambda: struct.pack("<I", 1 << 31) + b"\0" * 100,
    "zstd": lambda: bytes(numcodecs.Zstd().encode(bytes(2 << 20))),
    "gzip": lambda: _gzip(bytes(2 << 20)),
    "zlib": lambda: zlib.compress(bytes(2 << 20)),
    "bz2": lambda: bytes(numcodecs.BZ2().encode(bytes(2 << 20))),
    "lzma": lambda: bytes(numcodecs.LZMA(preset=0).encode(bytes(2 << 20))),
}


@pytest.mark.parametrize("codec", BOMBS)
@pytest.mark.parametrize("version", [2, 3])
def test_chunks_that_decode_to_more_than_their_array_has(tmp_path, monkeypatch, codec, version):
    monkeypatch.setattr(codecs, "_HARMLESS_CHUNK_BYTES", 1 << 20)
    if version == 2:
        compressor = numcodecs.get_codec({"id": codec})
    else:
        own = {"gzip": GzipCodec(), "zstd": ZstdCodec()}
        name = {"bz2": "BZ2", "lz4": "LZ4", "lzma": "LZMA", "zlib": "Zlib"}.get(codec)
        compressor = own.get(codec) or getattr(zarr.codecs.numcodecs, name)()
    path, chunk = stores(tmp_path, zarr_format=version, compressors=compressor)
    np.testing.assert_array_equal(open_data(path).columns(np.arange(60)).T, X)
    chunk.write_bytes(BOMBS[codec]())
    with pytest.raises(ReadError, match=rf"a chunk \({codec}\) claims \d+ bytes or more"):
        open_data(path)
    chunk.write_bytes(chunk.read_bytes()[:10])
    with pytest.raises(ReadError):
        open_data(path)


def zstd_frame(*blocks, flags=0):
    """A frame without a size, of blocks of (kind, length, content)."""
    frame = b"\x28\xb5\x2f\xfd" + bytes([flags]) + b"\x50"
    for number, (kind, length, content) in enumerate(blocks, 1):
        header = (number == len(blocks)) | kind << 1 | length << 3
        frame += header.to_bytes(3, "little") + content
    return memoryview(frame)


def test_frames_of_zstd_without_a_size():
    repeated = (1, 100_000, b"x")
    codecs._check_zstd(zstd_frame((0, 3, b"abc"), repeated), most=1 << 20)
    assert len(numcodecs.Zstd().decode(bytes(zstd_frame((0, 3, b"abc"), repeated)))) == 100_003
    with pytest.raises(FileFormatError, match=r"\(zstd\) claims"):
        codecs._check_zstd(zstd_frame(*[repeated] * 20), most=1 << 20)
    with pytest.raises(FileFormatError, match=r"\(zstd\) claims"):
        codecs._check_zstd(zstd_frame(*[(2, 4, b"abcd")] * 20), most=1 << 20)
    skipped = b"\x53\x2a\x4d\x18" + struct.pack("<I", 5) + b"12345"
    bomb = memoryview(skipped + bytes(zstd_frame(*[repeated] * 20)))
    with pytest.raises(FileFormatError, match=r"\(zstd\) claims"):
        codecs._check_zstd(bomb, most=1 << 20)


@pytest.mark.parametrize("version", [2, 3])
def test_texts_that_are_not_there(tmp_path, version):
    root = zarr.open_group(tmp_path / "a.zarr", mode="w", zarr_format=version)
    root.create_array("X", data=X, chunks=X.shape)
    names = np.array([f"s{n}" for n in range(60)], dtype=object if version == 2 else "T")
    options = {"filters": [numcodecs.VLenUTF8()], "compressors": None} if version == 2 else {}
    index = root.create_group("obs").create_array(
        "index", shape=(60,), dtype=str, chunks=(60,), **options | {"compressors": None}
    )
    index[:] = names
    root["obs"].attrs["_index"] = "index"
    assert open_data(tmp_path / "a.zarr").names.sample_names[:2] == ("s0", "s1")
    chunk = tmp_path / "a.zarr/obs/index" / ("0" if version == 2 else "c/0")
    chunk.write_bytes(struct.pack("<I", 0xFFFFFFFF) + chunk.read_bytes()[4:])
    assert open_data(tmp_path / "a.zarr").names.sample_names is None
    with pytest.raises(FileFormatError, match="claims 4294967295 texts"):
        codecs._check_texts(memoryview(chunk.read_bytes()), most=1 << 20)


def test_settings_that_name_other_codecs(tmp_path):
    path, _ = stores(tmp_path, compressors=None)
    settings = json.loads((path / "zarr.json").read_text())
    settings["attributes"] = {"filters": [{"id": "pickle"}]}  # which are not those of the chunks
    (path / "zarr.json").write_text(json.dumps(settings))
    assert open_data(path).shape == (20, 60)
    nested = []
    for _ in range(100):
        nested = [nested]
    with pytest.raises(FileFormatError, match="too deeply"):
        codecs.check_codecs({"codecs": nested}, "a.zarr")
