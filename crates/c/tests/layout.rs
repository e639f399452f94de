//! The structures of `transom.h` are those of the library: every field, its place and its type, as the C compiler sees
//! it.

#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

use std::{
    ffi::c_void,
    fmt::Write as _,
    fs,
    mem::{offset_of, size_of},
    path::Path,
    process::Command,
};

use transom_c::{TransomAttr, TransomEntry, TransomPci, TransomPlatform, TransomRegisters};

/// A type that both languages have.
trait InC {
    /// Returns how C calls it.
    fn in_c() -> String;
}

macro_rules! in_c {
    ($($rust:ty: $c:literal;)*) => {
        $(impl InC for $rust {
            fn in_c() -> String {
                $c.to_owned()
            }
        })*
    };
}

in_c! {
    (): "void";
    u8: "uint8_t";
    u32: "uint32_t";
    u64: "uint64_t";
    i64: "int64_t";
    usize: "size_t";
    *mut c_void: "void *";
    *const c_void: "const void *";
    *const u32: "const uint32_t *";
    *mut u64: "uint64_t *";
    // Of `char name[]`, which C makes a pointer.
    [u8; 256]: "char *";
}

macro_rules! functions_in_c {
    ($(($($argument:ident),*))*) => {
        $(impl<Out: InC, $($argument: InC),*> InC for Option<unsafe extern "C" fn($($argument),*) -> Out> {
            fn in_c() -> String {
                format!("{} (*)({})", Out::in_c(), [$($argument::in_c()),*].join(", "))
            }
        })*
    };
}

functions_in_c! { (A) (A, B) (A, B, C) (A, B, C, D) }

fn type_of<S, T: InC>(_: fn(&S) -> &T) -> String {
    T::in_c()
}

/// Writes assertions for all fields of a structure: it has no other, or the pattern does not compile.
macro_rules! assertions {
    ($to:ident, $rust:ident, $c:literal, $($field:ident: $name:literal),*) => {
        let _ = |$rust { $($field: _),* }: &$rust| ();
        writeln!($to, "_Static_assert(sizeof(struct {}) == {}, \"{}\");", $c, size_of::<$rust>(), $c).unwrap();
        $(
            let (at, wanted) = (offset_of!($rust, $field), type_of(|all: &$rust| &all.$field));
            let name = concat!($c, ".", $name);
            writeln!($to, "_Static_assert(offsetof(struct {}, {}) == {at}, \"{name}\");", $c, $name).unwrap();
            let value = format!("((struct {} *)0)->{}", $c, $name);
            let has_type = format!("_Generic({value}, {wanted}: 1, default: 0)");
            writeln!($to, "_Static_assert({has_type}, \"{name} is {wanted}\");").unwrap();
        )*
    };
}

fn assertions() -> String {
    let mut program = String::from("#include \"transom.h\"\n");
    assertions!(program, TransomPlatform, "transom_platform",
        size: "size", context: "context", now_ns: "now_ns", wait: "wait", wake: "wake", yield_now: "yield",
        dma_alloc: "dma_alloc", dma_free: "dma_free", dma_address: "dma_address",
        dma_contiguous_max: "dma_contiguous_max", is_single_threaded: "is_single_threaded");
    assertions!(program, TransomRegisters, "transom_registers",
        base: "base", len: "len", context: "context", read: "read", write: "write");
    assertions!(program, TransomPci, "transom_pci",
        context: "context", config_read: "config_read", config_write: "config_write", map: "map");
    assertions!(program, TransomAttr, "transom_attr",
        ino: "ino", size: "size", blocks: "blocks", atime: "atime", mtime: "mtime", ctime: "ctime",
        atime_nsec: "atime_nsec", mtime_nsec: "mtime_nsec", ctime_nsec: "ctime_nsec", mode: "mode", nlink: "nlink",
        uid: "uid", gid: "gid", rdev: "rdev");
    assertions!(program, TransomEntry, "transom_entry",
        ino: "ino", kind: "type", name_len: "name_len", name: "name");
    program
}

/// Compiles a program with the header. Returns what the compiler says of it if it refuses it; `None` without a
/// compiler.
fn compile(program: &str) -> Option<Result<(), String>> {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("layout.c");
    fs::write(&source, program).unwrap();
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    let mut compiler = Command::new("cc");
    compiler.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I"]).arg(include).arg(source);
    let output = compiler.output().ok()?;
    Some(if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) })
}

#[test]
fn every_field_of_the_header_has_the_place_and_the_type_that_the_library_has() {
    let program = assertions();
    let Some(outcome) = compile(&program) else { return println!("SKIPPED: there is no C compiler, cc") };
    outcome.unwrap();
    // The compiler does look: each of these is refused.
    for (right, wrong) in
        [("rdev) == 76", "rdev) == 72"), ("yield, void", "yield, int"), ("rdev, uint32_t", "rdev, int")]
    {
        assert!(program.contains(right), "{right}");
        assert!(compile(&program.replace(right, wrong)).unwrap().is_err(), "{wrong}");
    }
}
