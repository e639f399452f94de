//! Links the kernel with `kernel.ld`.

fn main() {
    println!("cargo::rerun-if-changed=kernel.ld");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("none") {
        let here = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
        println!("cargo::rustc-link-arg-bins=-T{here}/kernel.ld");
        // The target's default is a position-independent executable, which nothing would relocate here.
        println!("cargo::rustc-link-arg-bins=--no-pie");
    }
}
