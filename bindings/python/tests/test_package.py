"""The wheel: its version, its page, and a tag that says what its library needs. NANOVLLM_WHEEL is the wheel, NANOVLLM_SOURCE the source tree."""

import importlib.metadata
import os
import re
import struct
import subprocess
import sys
import tarfile
import tempfile
import unittest
import zipfile
from pathlib import Path

import nanovllm
from test_documents import SOURCE

WHEEL = os.environ.get("NANOVLLM_WHEEL")


class Version(unittest.TestCase):
    def test_all_say_the_same(self):
        declared = re.search(r'^version = "(.*)"$', (SOURCE / "bindings/python/pyproject.toml").read_text(), re.M)[1]
        self.assertEqual((nanovllm.__version__, nanovllm.version()), (declared, declared))
        if WHEEL:
            self.assertEqual(importlib.metadata.version("nanovllm"), declared)

    def test_all_names_exist(self):
        for name in nanovllm.__all__:
            self.assertTrue(hasattr(nanovllm, name), name)


@unittest.skipUnless(WHEEL, "needs a wheel: make python")
class Wheel(unittest.TestCase):
    def test_the_page(self):
        about = importlib.metadata.metadata("nanovllm")
        self.assertEqual((about["Author"], about["License-Expression"]), ("The libnanovllm authors", "MIT"))
        self.assertIn("engine.chat", about.get_payload())
        self.assertIn("Typing :: Typed", about.get_all("Classifier"))
        with zipfile.ZipFile(WHEEL) as wheel:
            self.assertIn("nanovllm-0.1.0.dist-info/licenses/LICENSE".replace("0.1.0", nanovllm.__version__), wheel.namelist())
            self.assertIn("nanovllm/py.typed", wheel.namelist())

    @unittest.skipUnless(sys.platform == "linux", "needs auditwheel")
    def test_the_tag_is_true(self):
        tag = re.search(r"-py3-none-(manylinux_2_(\d+)_\w+)\.whl$", WHEEL)
        self.assertIsNotNone(tag, WHEEL)
        said = subprocess.run([sys.executable, "-m", "auditwheel", "show", WHEEL], check=True, capture_output=True, text=True).stdout
        # auditwheel knows some versions of glibc: the first of them that is new enough.
        allowed = re.search(r'platform\s+tag:\s+"manylinux_2_(\d+)_', said)
        self.assertIsNotNone(allowed, said)
        needed = max(int(minor) for minor in re.findall(r"GLIBC_2\.(\d+)", said))
        self.assertEqual(int(tag[2]), max(needed, 17))
        self.assertGreaterEqual(int(allowed[1]), needed)


@unittest.skipUnless(WHEEL, "needs a wheel: make python")
class Archives(unittest.TestCase):
    """Wheels of the layouts of archives: the library of this machine stands for others where only its header is read."""

    def made(self, archive, out):
        script = [SOURCE / "scripts/wheel.sh", archive, out]
        # "no" switches the isolation off: setuptools is here already.
        environment = {**os.environ, "PYTHON": sys.executable, "PIP_NO_BUILD_ISOLATION": "no", "NANOVLLM_URL": "https://example.org/nanovllm"}
        return subprocess.run(script, env=environment, capture_output=True, text=True)

    def test_of_linux_arm64_and_windows(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = Path(folder)
            with zipfile.ZipFile(WHEEL) as wheel:
                native = wheel.read("nanovllm/libnanovllm.so.0")
            glibc = re.search(r"-manylinux_(2_\d+)_", WHEEL)[1]
            arm64 = bytearray(native)
            struct.pack_into("<H", arm64, 18, 183)
            dll = bytearray(256)
            dll[:2] = b"MZ"
            struct.pack_into("<I", dll, 0x3C, 128)
            dll[128:132] = b"PE\0\0"
            struct.pack_into("<H", dll, 132, 0x8664)
            for name, machine, data in [("linux-x86_64", "x86_64", native), ("linux-aarch64", "aarch64", bytes(arm64))]:
                lib = folder / name / f"nanovllm-{name}" / "lib"
                lib.mkdir(parents=True)
                (lib / "libnanovllm.so.0.1.0").write_bytes(data)
                (lib / "libnanovllm.so.0").symlink_to("libnanovllm.so.0.1.0")
                (lib / "libnanovllm.so").symlink_to("libnanovllm.so.0")
                with tarfile.open(folder / f"{name}.tar.gz", "w:gz", compresslevel=1) as archive:
                    archive.add(lib.parent, lib.parent.name)
                run = self.made(folder / f"{name}.tar.gz", folder)
                self.assertTrue(run.stdout.endswith(f"-py3-none-manylinux_{glibc}_{machine}.whl\n"), (run.stdout, run.stderr))
                with zipfile.ZipFile(run.stdout.strip()) as wheel:
                    self.assertEqual(wheel.read("nanovllm/libnanovllm.so.0"), data)
            with zipfile.ZipFile(folder / "windows.zip", "w") as archive:
                archive.writestr("nanovllm-windows/bin/nanovllm.dll", bytes(dll))
                archive.writestr("nanovllm-windows/bin/nanovllm.exe", b"MZ")
            run = self.made(folder / "windows.zip", folder)
            self.assertTrue(run.stdout.endswith("-py3-none-win_amd64.whl\n"), (run.stdout, run.stderr))
            with zipfile.ZipFile(run.stdout.strip()) as wheel:
                self.assertEqual(wheel.read("nanovllm/nanovllm.dll"), bytes(dll))
                about = wheel.read(f"nanovllm-{nanovllm.__version__}.dist-info/METADATA").decode()
            self.assertIn("\nProject-URL: Homepage, https://example.org/nanovllm\n", about)

    def test_what_is_no_library(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = Path(folder)
            with zipfile.ZipFile(folder / "empty.zip", "w") as archive:
                archive.writestr("nanovllm/README.md", "")
            (folder / "other.dll").write_bytes(b"MZ" + bytes(100))
            for name, text in [("empty.zip", "has neither libnanovllm.so nor nanovllm.dll"), ("none.tar.gz", "no such file"), ("other.dll", "is no library for Linux or Windows")]:
                run = self.made(folder / name, folder)
                self.assertNotEqual(run.returncode, 0)
                self.assertIn(text, run.stderr)


if __name__ == "__main__":
    unittest.main()
