//! QEMU for other architectures than this machine's, on which the bare-metal kernel is tested.

use std::{fmt, str::FromStr};

use super::{Program, Tools};
use crate::Result;

/// An architecture that QEMU translates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Architecture {
    /// 64-bit Arm.
    Aarch64,
    /// 64-bit RISC-V.
    Riscv64,
}

impl Architecture {
    /// Returns QEMU's program.
    fn program(self) -> String {
        format!("qemu-system-{self}")
    }

    /// Returns the packages that may contain the program, the one of newer releases first.
    fn packages(self) -> &'static [&'static str] {
        match self {
            Self::Aarch64 => &["qemu-system-arm"],
            Self::Riscv64 => &["qemu-system-riscv", "qemu-system-misc"],
        }
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Aarch64 => "aarch64",
            Self::Riscv64 => "riscv64",
        })
    }
}

impl FromStr for Architecture {
    type Err = String;

    fn from_str(name: &str) -> std::result::Result<Self, String> {
        [Self::Aarch64, Self::Riscv64]
            .into_iter()
            .find(|architecture| architecture.to_string() == name)
            .ok_or_else(|| format!("unknown architecture {name:?}: expected aarch64 or riscv64"))
    }
}

impl Tools<'_> {
    /// Returns QEMU for `architecture` with the device that has a DAX window: the one in `PATH`, or a cached one, or
    /// one fetched now into the cache.
    ///
    /// # Errors
    ///
    /// Returns an error if none is found or fetched.
    pub fn qemu_of(&self, architecture: Architecture) -> Result<Program> {
        self.newest(&architecture.program(), architecture.packages())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_architecture_is_named_as_its_emulator_is() {
        let arm: Architecture = "aarch64".parse().unwrap();
        assert_eq!(arm.program(), "qemu-system-aarch64");
        assert_eq!("riscv64".parse(), Ok(Architecture::Riscv64));
        assert!("x86_64".parse::<Architecture>().unwrap_err().contains("aarch64 or riscv64"));
    }
}
