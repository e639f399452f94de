//! Links the kernel with the script of its architecture.

use std::env::var;

fn main() {
    let of = |name| var(name).unwrap_or_default();
    let arch = of("CARGO_CFG_TARGET_ARCH");
    println!("cargo::rerun-if-changed=kernel.{arch}.ld");
    if of("CARGO_CFG_TARGET_OS") == "none" {
        println!("cargo::rustc-link-arg-bins=-T{}/kernel.{arch}.ld", of("CARGO_MANIFEST_DIR"));
        // The default of some targets is a position-independent executable, which nothing would relocate here.
        println!("cargo::rustc-link-arg-bins=--no-pie");
    }
}
