//! The machines that kernels are built for.

/// How the kernel of a machine is built.
#[derive(Debug)]
pub(super) struct Target {
    /// For people.
    pub(super) name: &'static str,
    /// The architecture, as an argument of make.
    pub(super) architecture: &'static str,
    /// What make has to make.
    pub(super) goal: &'static str,
    /// Where it is then, in the source.
    pub(super) image: &'static str,
    /// Where it is kept: a directory of the cache, and the file's name.
    pub(super) folder: &'static str,
    pub(super) kept: &'static str,
    /// The configuration, in addition to `allnoconfig`.
    pub(super) config: &'static str,
    pub(super) changes: &'static [Change],
    /// Whether the kernel without the patch is of use.
    pub(super) is_built_plain: bool,
    /// Whether the kernel is linked with the C library.
    pub(super) links_libc: bool,
    /// Approximate number of lines that make prints, for the percentage.
    pub(super) lines: f32,
}

/// A change of the source: the file, the beginning of a line, and its replacement.
pub(super) type Change = [&'static str; 3];

/// User Mode Linux.
pub(super) const UML: Target = Target {
    name: "User Mode Linux",
    architecture: "ARCH=um",
    goal: "linux",
    image: "linux",
    folder: "uml",
    kept: "linux",
    config: include_str!("um.config"),
    // Hides the vDSO from programs: here it has no `getcpu`, without which some runtime libraries abort, and its
    // functions make ordinary system calls anyway.
    changes: &[["arch/x86/um/asm/elf.h", "#define ARCH_DLINFO", "#define ARCH_DLINFO"]],
    is_built_plain: true,
    links_libc: true,
    lines: 1200.0,
};

/// A virtual machine whose devices are on PCI.
pub(super) const PCI: Target = Target {
    name: "Linux for virtual machines",
    architecture: "ARCH=x86_64",
    goal: "bzImage",
    image: "arch/x86/boot/bzImage",
    folder: "linux",
    kept: "bzImage",
    config: include_str!("x86_64.config"),
    // objtool needs libelf, and nothing of this configuration needs objtool.
    changes: &[["arch/x86/Kconfig", "\tselect HAVE_OBJTOOL\t\t\tif X86_64", ""]],
    // The distribution has such kernels.
    is_built_plain: false,
    links_libc: false,
    lines: 1700.0,
};
