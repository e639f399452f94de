//! Executables without what only debuggers and linkers read.
//!
//! The kernel loads a program by its program headers alone. Symbols and debug information come after the last byte
//! that these name, and are most of a development build.

use object::{
    Endianness,
    elf::FileHeader64,
    read::elf::{FileHeader, ProgramHeader},
};

/// The offset and length of the header's three fields on sections, all to be zero: `e_shoff`, and `e_shentsize`,
/// `e_shnum`, `e_shstrndx` together. The first is eight bytes, the others are two bytes each.
const SECTION_FIELDS: [(usize, usize); 2] = [(0x28, 8), (0x3a, 6)];

/// `executable` up to the end of its last segment, without section headers; anything but ELF stays as it is.
pub(super) fn without_sections(mut executable: Vec<u8>) -> Vec<u8> {
    let Some(end) = end_of_segments(&executable) else { return executable };
    executable.truncate(end);
    for (start, len) in SECTION_FIELDS {
        executable[start..start + len].fill(0);
    }
    executable
}

fn end_of_segments(executable: &[u8]) -> Option<usize> {
    let header = FileHeader64::<Endianness>::parse(executable).ok()?;
    let endian = header.endian().ok()?;
    let segments = header.program_headers(endian, executable).ok()?;
    let ends = segments.iter().map(|segment| segment.p_offset(endian).saturating_add(segment.p_filesz(endian)));
    let end = usize::try_from(ends.max()?).ok()?;
    (end <= executable.len()).then_some(end)
}

#[cfg(test)]
mod tests {
    use super::without_sections;

    #[test]
    fn a_trimmed_program_is_smaller_and_still_runs() {
        let folder = tempfile::tempdir().unwrap();
        let this = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let trimmed = without_sections(this.clone());
        assert!(trimmed.len() < this.len());

        let path = folder.path().join("trimmed");
        std::fs::write(&path, trimmed).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let output = std::process::Command::new(path).arg("--list").output().unwrap();
        assert!(output.status.success());
        assert!(String::from_utf8_lossy(&output.stdout).contains("a_trimmed_program_is_smaller"));
    }

    #[test]
    fn what_is_no_program_stays() {
        assert_eq!(without_sections(b"#!/bin/sh\n".to_vec()), b"#!/bin/sh\n");
    }
}
