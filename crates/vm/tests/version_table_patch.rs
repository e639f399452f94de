//! The patch of `linux/` and the source that it is for.

use std::process::{Command, Output};

use transom_vm::{
    build,
    packages::{Cache, OnStderr, Packages},
};

const PATCH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../linux/fuse-version-table.patch");

#[track_caller]
fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    let said = [&*output.stdout, &*output.stderr].concat();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&said));
    output
}

#[test]
fn the_patch_applies_to_the_source_that_it_is_for() {
    let report = OnStderr::default();
    let source = Cache::locate().and_then(|cache| build::source_for_patch(&Packages::new(&cache, &report)));
    let archive = match source {
        Ok(archive) => archive,
        Err(error) => return eprintln!("SKIPPED: the_patch_applies: no source: {error}"),
    };
    if [("patch", "--version"), ("xz", "--version")].iter().any(|(name, word)| !starts(name, word)) {
        return eprintln!("SKIPPED: the_patch_applies: patch or xz is not installed");
    }
    // 1. What the patch touches, and the directory that it adds a file to.
    let folder = tempfile::tempdir().unwrap();
    run(Command::new("tar")
        .arg("-xJf")
        .arg(&archive)
        .arg("-C")
        .arg(folder.path())
        .args(["--strip-components=1", "--wildcards", "--no-same-owner"])
        .args(["*/fs/fuse/*", "*/include/uapi/linux/virtio_fs.h"]));
    // 2. It applies as it is, without guessing.
    run(Command::new("patch").current_dir(folder.path()).args([
        "-p1",
        "--batch",
        "--forward",
        "--fuzz=0",
        "-i",
        PATCH,
    ]));
    let added = folder.path().join("fs/fuse/versions.c");
    assert!(std::fs::read_to_string(&added).unwrap().starts_with("// SPDX-License-Identifier: GPL-2.0-only\n"));
    assert!(!folder.path().join("fs/fuse/inode.c.rej").exists());
}

fn starts(program: &str, word: &str) -> bool {
    Command::new(program).arg(word).output().is_ok()
}
