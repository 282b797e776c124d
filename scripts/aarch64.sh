# For bash: gets tools, libraries and a Rust compiler for AArch64 on a Debian machine with another processor. scripts/cross and
# scripts/packages share this file. Everything is unpacked below target/cross, except qemu and the C compiler. Each function fails
# if it cannot get what it is for.
triple=aarch64-unknown-linux-gnu
place=$PWD/target/cross
sysroot=$place/sysroot
as_root=""
[ "$(id -u)" = 0 ] || as_root="sudo -n"
export DEBIAN_FRONTEND=noninteractive

tools() {
	command -v qemu-aarch64-static >/dev/null && command -v aarch64-linux-gnu-g++ >/dev/null && return
	$as_root apt-get update -qq
	$as_root apt-get install -y -qq --no-install-recommends qemu-user-static gcc-aarch64-linux-gnu g++-aarch64-linux-gnu >/dev/null
}

# apt-get for AArch64, which does not change this machine's packages.
foreign() {
	apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State::lists="$place/apt/lists" -o Debug::NoLocking=1 \
		-o Dir::State::status="$place/apt/status" -o Dir::Cache::archives="$place/apt/archives" "$@"
}

unpack() {
	for package in "$1"/*.deb; do dpkg-deb -x "$package" "$2" || return; done
	rm "$1"/*.deb
}

# Unpacks Debian's packages for AArch64 with all they need, without installing them.
libraries() {
	local wanted="libc6-dev libgcc-12-dev libstdc++-12-dev coreutils libopenmpi-dev openmpi-bin libmpich-dev mpich"
	wanted="$wanted libopen-trace-format2-dev"
	[ "$(cat "$sysroot/complete" 2>/dev/null)" = "$wanted" ] && return
	mkdir -p "$place"/apt/{lists,archives}/partial
	: >"$place/apt/status"
	foreign update
	foreign install -y --no-install-recommends --download-only $wanted && unpack "$place/apt/archives" "$sysroot" &&
		echo "$wanted" >"$sysroot/complete"
}

# Finds a compiler with the standard library: rustup's, or Debian's, which is not installed but unpacked.
compiler() {
	[ -d "$(rustc --print target-libdir --target $triple)" ] && return
	timeout 60 rustup target add $triple >/dev/null 2>&1 && return
	local rust=$place/rust library=$place/rust/usr/lib/$(uname -m)-linux-gnu needs
	if [ ! -f "$rust/complete" ]; then
		needs=$(apt-cache depends libstd-rust-web-dev | awk '$1 == "Depends:" { print $2 }') || return
		needs="$needs $(apt-cache depends $needs | awk '$2 ~ /^libllvm/ { print $2 }')"
		mkdir -p "$rust"
		(cd "$rust" && apt-get download -qq rustc-web libstd-rust-web-dev $needs && foreign download libstd-rust-web-dev) &&
			unpack "$rust" "$rust" && touch "$rust/complete" || return
	fi
	program rustc "LD_LIBRARY_PATH=$library exec $rust/usr/bin/rustc"
	export RUSTC=$place/bin/rustc
	"$RUSTC" --target $triple --crate-type lib --emit metadata -o "$place/probe" - </dev/null
}

# program NAME COMMAND [ARGUMENTS]: makes a program of this name for the build and the tests. It passes its own arguments to
# the command, and then ARGUMENTS.
program() {
	mkdir -p "$(dirname "$place/bin/$1")"
	printf '#!/bin/sh\n%s "$@" %s\n' "$2" "${3:-}" >"$place/bin/$1"
	chmod +x "$place/bin/$1"
}

# Lets the kernel start programs for AArch64 with qemu, as Debian's binfmt-support would.
emulation() {
	local known=/proc/sys/fs/binfmt_misc
	[ -e $known/register ] || $as_root mount -t binfmt_misc binfmt_misc $known
	[ -e $known/qemu-aarch64 ] || printf '%s' ":qemu-aarch64:M::\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00:\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff:$(command -v qemu-aarch64-static):OCF" |
		$as_root tee $known/register >/dev/null
}
