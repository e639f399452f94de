//! Images that are made here, in each format, and archives that try to get out of their directory.

mod common;

use std::{
    fs,
    os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt},
    path::Path,
};

use common::{Archive, Quiet, docker_archive, gzip, layout, zstd};
use tar::EntryType;
use transom_image::{Error, Store, Unpacked};

fn open(dir: &Path, image: &Path) -> Result<Unpacked, Error> {
    Store::at(dir.join("store")).open(image, None, &Quiet)
}

/// Unpacks `archive` as the only layer; returns its root and what keeps it.
fn unpacked(archive: Archive) -> (tempfile::TempDir, Unpacked) {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image.tar");
    fs::write(&image, archive.finish()).unwrap();
    let unpacked = open(dir.path(), &image).unwrap();
    (dir, unpacked)
}

#[track_caller]
fn is_refused(archive: &[u8], text: &str) {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("image.tar"), archive).unwrap();
    fs::write(dir.path().join("outside"), "untouched").unwrap();
    let error = open(dir.path(), &dir.path().join("image.tar")).unwrap_err().to_string();
    assert!(error.contains(text), "{error}");
    assert_eq!(fs::read_to_string(dir.path().join("outside")).unwrap(), "untouched");
    let store = fs::read_dir(dir.path().join("store")).unwrap().map(|entry| entry.unwrap().file_name());
    let left: Vec<_> = store.collect();
    assert!(left.is_empty(), "{left:?}");
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_tar_of_a_root_keeps_content_modes_times_and_links() {
    let long = "long/".repeat(60) + "name";
    let mut archive = Archive::new();
    archive.directory("bin", 0o755).file("bin/sh", 0o4755, b"shell").link(EntryType::Symlink, "sh", "/bin/sh");
    archive.link(EntryType::Link, "bin/ash", "bin/sh").link(EntryType::Fifo, "pipe", "").file(&long, 0o600, b"deep");
    archive.link(EntryType::Char, "dev/null", "");
    let (_dir, image) = unpacked(archive);
    let at = |path: &str| image.root.join(path);
    assert_eq!(fs::read(at("bin/sh")).unwrap(), b"shell");
    assert_eq!(fs::read(at(&long)).unwrap(), b"deep");
    let found = fs::metadata(at("bin/sh")).unwrap();
    assert_eq!((found.mode() & 0o7777, found.mtime(), found.nlink()), (0o4755, common::MTIME, 2));
    assert_eq!(fs::metadata(at("bin/ash")).unwrap().ino(), found.ino());
    assert_eq!(fs::read_link(at("sh")).unwrap(), Path::new("/bin/sh"));
    assert!(fs::metadata(at("pipe")).unwrap().file_type().is_fifo());
    assert_eq!((image.devices, at("dev/null").exists()), (1, false));
    if rustix::process::geteuid().is_root() {
        assert_eq!((found.uid(), found.gid()), (common::UID, common::GID));
    }
}

#[test]
fn compressed_tars_are_read_and_others_are_named() {
    let mut archive = Archive::new();
    archive.file("etc/name", 0o644, b"x");
    let plain = archive.finish();
    for bytes in [gzip(&plain), zstd(&plain)] {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("image");
        fs::write(&image, bytes).unwrap();
        assert_eq!(fs::read(open(dir.path(), &image).unwrap().root.join("etc/name")).unwrap(), b"x");
    }
    is_refused(b"\xfd7zXZ\0 and so on", "xz");
    is_refused(b"#!/bin/sh\n", "neither a directory nor an image");
    is_refused(&plain[..512], "broken");
}

#[test]
fn later_layers_replace_and_remove_what_earlier_ones_have() {
    let mut first = Archive::new();
    first
        .file("kept", 0o644, b"1")
        .file("gone", 0o644, b"1")
        .file("dir/old", 0o644, b"1")
        .file("tree/a/b", 0o644, b"1");
    first.directory("usr/lib", 0o755).link(EntryType::Symlink, "lib", "usr/lib").file("file", 0o644, b"1");
    first.file("one", 0o644, b"1").link(EntryType::Link, "two", "one");
    let mut second = Archive::new();
    second.file(".wh.gone", 0o644, b"").file("dir/new", 0o644, b"2").file("dir/.wh..wh..opq", 0o644, b"");
    second.directory("file", 0o755).file(".wh.tree", 0o644, b"").file("lib/through", 0o644, b"2").file(
        "file/now/a/directory",
        0o644,
        b"2",
    );
    second.file(".wh.never", 0o644, b"").file(".wh..wh.plnk", 0o644, b"").file("two", 0o644, b"2");
    // A directory that becomes a directory keeps what it has.
    second.directory("usr", 0o700);
    let second = second.finish();
    let layers = [first.finish(), gzip(&second)];

    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().join("layout");
    layout(&at, &layers, "latest");
    let (tar, docker) = (dir.path().join("oci.tar"), dir.path().join("docker.tar"));
    fs::write(&tar, common::tar_of(&at)).unwrap();
    fs::write(&docker, docker_archive(&layers, "name:latest")).unwrap();
    fs::write(dir.path().join("docker.tar.gz"), gzip(&fs::read(&docker).unwrap())).unwrap();
    for image in ["layout", "oci.tar", "docker.tar", "docker.tar.gz"] {
        let fresh = tempfile::tempdir().unwrap();
        let unpacked = open(fresh.path(), &dir.path().join(image)).unwrap();
        let root = &unpacked.root;
        assert_eq!(names(root), ["dir", "file", "kept", "lib", "one", "two", "usr"], "{image}");
        assert_eq!(names(&root.join("dir")), ["new"]);
        assert_eq!(fs::read(root.join("usr/lib/through")).unwrap(), b"2");
        assert_eq!(fs::read(root.join("file/now/a/directory")).unwrap(), b"2");
        assert_eq!(fs::metadata(root.join("usr")).unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(
            (fs::read(root.join("one")).unwrap(), fs::read(root.join("two")).unwrap()),
            (b"1".into(), b"2".into())
        );
        assert_eq!(unpacked.config.env, ["A=b"]);
        assert_eq!((&*unpacked.config.user, &*unpacked.config.working_dir), ("me", "/srv"));
        assert_eq!(unpacked.config.command(), ["/entry", "argument"]);
    }
}

#[test]
fn archives_of_docker_are_read_as_old_and_new_versions_write_them() {
    let mut archive = Archive::new();
    archive.file("name", 0o644, b"content");
    let layers = [archive.finish()];
    let dir = tempfile::tempdir().unwrap();
    // Since 25, a layout with the old manifest beside it; before, directories with a file `layer.tar`.
    let layout_dir = dir.path().join("layout");
    layout(&layout_dir, &layers, "latest");
    let blob = |bytes: &[u8]| format!("blobs/sha256/{}", common::sha256(bytes));
    let manifest = |config: &str, layer: &str| {
        format!(r#"[{{"Config":"{config}","RepoTags":["name:latest"],"Layers":["{layer}"],"LayerSources":{{}}}}]"#)
    };
    let config = common::config(common::this_architecture(), &layers);
    fs::write(layout_dir.join("manifest.json"), manifest(&blob(&config), &blob(&layers[0]))).unwrap();
    fs::write(layout_dir.join("repositories"), "{}").unwrap();
    fs::write(dir.path().join("new.tar"), common::tar_of(&layout_dir)).unwrap();

    let id = "0123456789abcdef".repeat(4);
    let mut old = Archive::new();
    old.directory(&format!("{id}/"), 0o755).file(&format!("{id}/VERSION"), 0o644, b"1.0");
    old.file(&format!("{id}/layer.tar"), 0o644, &layers[0]).file("config.json", 0o644, &config);
    old.file("manifest.json", 0o644, manifest("config.json", &format!("{id}/layer.tar")).as_bytes());
    fs::write(dir.path().join("old.tar"), old.finish()).unwrap();

    let roots = ["new.tar", "old.tar"].map(|image| open(dir.path(), &dir.path().join(image)).unwrap().root.clone());
    assert_eq!(fs::read(roots[0].join("name")).unwrap(), b"content");
    assert_eq!(roots[0], roots[1], "one configuration is one image");
}

#[test]
fn a_tar_may_end_where_the_content_of_its_last_file_does_and_not_before() {
    let mut archive = Archive::new();
    archive.file("first", 0o644, &[1; 700]).file("last", 0o644, &[2; 700]);
    let bytes = archive.finish();
    // Two headers and two files, each of two blocks.
    let end = 512 + 1024 + 512 + 700;
    let dir = tempfile::tempdir().unwrap();
    for (len, is_whole) in [(end, true), (end + 100, true), (end - 1, false), (end - 700, false), (512 + 699, false)] {
        fs::write(dir.path().join("image.tar"), &bytes[..len]).unwrap();
        let opened = open(dir.path(), &dir.path().join("image.tar"));
        assert_eq!(opened.is_ok(), is_whole, "{len}: {opened:?}");
    }
    let mut long = bytes.clone();
    long.resize(bytes.len() + (17 << 20), 0);
    is_refused(&long, "after its end");
}

#[test]
fn an_image_is_unpacked_once_and_found_by_its_digest() {
    let dir = tempfile::tempdir().unwrap();
    let mut archive = Archive::new();
    archive.file("a", 0o644, b"x");
    let bytes = archive.finish();
    let paths = ["one.tar", "two.tar"].map(|name| dir.path().join(name));
    paths.iter().for_each(|path| fs::write(path, &bytes).unwrap());
    let first = open(dir.path(), &paths[0]).unwrap();
    fs::write(first.root.join("mark"), "").unwrap();
    for path in [&paths[0], &paths[1]] {
        assert!(open(dir.path(), path).unwrap().root.join("mark").exists());
    }
    let mut other = Archive::new();
    other.file("b", 0o644, b"x");
    fs::write(&paths[0], other.finish()).unwrap();
    assert_eq!(names(&open(dir.path(), &paths[0]).unwrap().root), ["b"]);
}

#[test]
fn entries_that_lead_out_of_the_image_make_nothing_there() {
    for path in ["../outside", "a/../../outside", "/../outside"] {
        let mut archive = Archive::new();
        archive.raw(EntryType::Regular, path, "", b"evil");
        is_refused(&archive.finish(), "leads out of the image");
        let mut archive = Archive::new();
        archive.raw(EntryType::Link, "link", path, b"");
        is_refused(&archive.finish(), "leads out of the image");
    }
    for name in [".wh..", ".wh...", "a/.wh..."] {
        let mut archive = Archive::new();
        archive.file("a/b", 0o644, b"").raw(EntryType::Regular, name, "", b"");
        is_refused(&archive.finish(), "hides no file");
    }
}

#[test]
fn links_in_paths_and_absolute_paths_stay_in_the_image() {
    let outside = tempfile::tempdir().unwrap();
    let path = outside.path().to_str().unwrap();
    fs::write(outside.path().join("secret"), "secret").unwrap();
    let mut archive = Archive::new();
    archive.raw(EntryType::Regular, "/absolute", "", b"a");
    // Through links that lead to a directory of the host, if they were followed there.
    archive.link(EntryType::Symlink, "host", path).link(EntryType::Symlink, "up", "../../../../../../..");
    archive.directory(path.trim_start_matches('/'), 0o755);
    archive.file("host/made", 0o644, b"b").file("up/top", 0o644, b"c");
    // A file replaces a link instead of writing through it.
    archive.link(EntryType::Symlink, "file", &format!("{path}/secret")).file("file", 0o644, b"d");
    // White-outs through links.
    archive.raw(EntryType::Regular, "host/.wh.secret", "", b"");
    let (_dir, image) = unpacked(archive);
    let at = |path: &str| image.root.join(path);
    assert_eq!(fs::read(at("absolute")).unwrap(), b"a");
    assert_eq!(fs::read(at(&path[1..]).join("made")).unwrap(), b"b");
    assert_eq!(fs::read(at("top")).unwrap(), b"c");
    assert_eq!(fs::read(at("file")).unwrap(), b"d");
    assert_eq!(names(outside.path()), ["secret"]);
    assert_eq!(fs::read(outside.path().join("secret")).unwrap(), b"secret");
}

#[test]
fn links_do_not_make_trees_that_are_too_deep_to_be_removed() {
    let deep = "d/".repeat(200);
    let mut archive = Archive::new();
    for number in 0..8 {
        let above = if number == 0 { String::new() } else { format!("link{}/", number - 1) };
        archive.directory(&format!("{above}{deep}"), 0o755);
        archive.link(EntryType::Symlink, &format!("link{number}"), &format!("{above}{deep}"));
    }
    is_refused(&archive.finish(), "more than 256 directories");
}

#[test]
fn a_hard_link_cannot_name_a_file_of_the_host() {
    let outside = tempfile::tempdir().unwrap();
    let secret = outside.path().join("secret");
    fs::write(&secret, "secret").unwrap();
    let mut archive = Archive::new();
    archive.raw(EntryType::Link, "stolen", secret.to_str().unwrap(), b"");
    is_refused(&archive.finish(), "\"stolen\"");
    let mut archive = Archive::new();
    archive.link(EntryType::Symlink, "host", outside.path().to_str().unwrap());
    archive.raw(EntryType::Link, "stolen", "host/secret", b"");
    is_refused(&archive.finish(), "\"stolen\"");
    // A link to a link is a link.
    let mut archive = Archive::new();
    archive.link(EntryType::Symlink, "link", secret.to_str().unwrap()).raw(EntryType::Link, "stolen", "link", b"");
    let (_dir, image) = unpacked(archive);
    assert!(fs::symlink_metadata(image.root.join("stolen")).unwrap().is_symlink());
}

#[test]
fn sizes_that_cannot_be_are_refused_before_they_are_written() {
    let mut archive = Archive::new();
    archive.claiming("huge", 1 << 60);
    is_refused(&archive.finish(), "are free");
    let mut archive = Archive::new();
    archive.claiming_name(8 << 20);
    is_refused(&archive.finish(), "a name of more than");
}

#[test]
fn an_image_for_another_machine_or_of_several_is_refused_with_the_next_step() {
    let dir = tempfile::tempdir().unwrap();
    let mut archive = Archive::new();
    archive.file("a", 0o644, b"x");
    let layers = [archive.finish()];
    let at = dir.path().join("layout");
    layout(&at, &layers, "one");
    common::add_name(&at, "two");
    let error = open(dir.path(), &at).unwrap_err().to_string();
    assert!(error.contains("several images") && error.contains("one, two"), "{error}");
    let store = Store::at(dir.path().join("store"));
    assert!(store.open(&at, Some("two"), &Quiet).is_ok());
    let error = store.open(&at, Some("three"), &Quiet).unwrap_err().to_string();
    assert!(error.contains("no image \"three\""), "{error}");

    let foreign = dir.path().join("foreign.tar");
    fs::write(&foreign, common::docker_archive_for("riscv64", &layers)).unwrap();
    let error = open(dir.path(), &foreign).unwrap_err().to_string();
    assert!(error.contains("linux on riscv64"), "{error}");
}

#[test]
fn a_damaged_layer_is_found_by_its_digest() {
    let dir = tempfile::tempdir().unwrap();
    let mut archive = Archive::new();
    archive.file("a", 0o644, b"content");
    let at = dir.path().join("layout");
    layout(&at, &[archive.finish()], "latest");
    let blobs = fs::read_dir(at.join("blobs/sha256")).unwrap().map(|entry| entry.unwrap().path());
    let layer = blobs.max_by_key(|path| fs::metadata(path).unwrap().len()).unwrap();
    let mut bytes = fs::read(&layer).unwrap();
    bytes[512] ^= 1;
    fs::write(&layer, bytes).unwrap();
    let error = open(dir.path(), &at).unwrap_err().to_string();
    assert!(error.contains("damaged"), "{error}");
}
