# Copyright the ampere authors. SPDX-License-Identifier: MIT OR Apache-2.0

import os

from spack_repo.builtin.build_systems.makefile import MakefilePackage

from spack.package import *


class Ampere(MakefilePackage):
    """Joules per rank, call path and GPU kernel of MPI programs, while they run: a Score-P substrate plugin, a measurement
    host of its own for programs without Score-P, and a collector on each node."""

    homepage = "https://example.invalid/ampere"
    git = "https://example.invalid/ampere.git"

    license("MIT OR Apache-2.0", checked_by="the authors")

    # To build a clone on this machine, use spack develop or spack dev-build ampere@main.
    version("main", branch="main")

    depends_on("c", type="build")
    depends_on("rust@1.88:", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("otf2@3:")

    conflicts("platform=darwin", msg="ampere is for Linux")

    def setup_build_environment(self, env):
        env.prepend_path("PATH", self.spec["otf2"].prefix.bin)  # otf2-config

    def build(self, spec, prefix):
        # Not make build, which looks for Debian's packages.
        Executable("cargo")("build", "--release", "--locked")

    def install(self, spec, prefix):
        make("install-files", f"PREFIX={prefix}")

    def setup_run_environment(self, env):
        # Score-P finds the plugin there.
        env.prepend_path("LD_LIBRARY_PATH", os.path.join(self.prefix.lib, "ampere-plugin"))

    def test_doctor(self):
        """ampere finds its own parts"""
        run = Executable(os.path.join(self.prefix.bin, "ampere"))
        run("--version")
        run("doctor", fail_on_error=False)
