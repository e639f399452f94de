//! Archives and images for tests.

#![allow(dead_code, reason = "each test uses a part")]

use std::{fs, io::Write, path::Path};

use flate2::{Compression, write::GzEncoder};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tar::{Builder, EntryType, Header};
use transom_image::Watch;

/// What entries have.
pub(crate) const MTIME: i64 = 1_600_000_000;
pub(crate) const UID: u32 = 123;
pub(crate) const GID: u32 = 456;

/// Watches nothing.
pub(crate) struct Quiet;

impl Watch for Quiet {
    fn begins(&self, _len_bytes: u64) {}

    fn advances(&self, _done_bytes: u64) {}

    fn waits_for(&self, _path: &Path) {}

    fn is_cancelled(&self) -> bool {
        false
    }
}

/// A tar.
pub(crate) struct Archive(Builder<Vec<u8>>);

impl Archive {
    pub(crate) fn new() -> Self {
        Self(Builder::new(Vec::new()))
    }

    pub(crate) fn file(&mut self, path: &str, mode: u32, content: &[u8]) -> &mut Self {
        let mut header = header(EntryType::Regular, mode, content.len() as u64);
        self.0.append_data(&mut header, path, content).unwrap();
        self
    }

    pub(crate) fn directory(&mut self, path: &str, mode: u32) -> &mut Self {
        self.0.append_data(&mut header(EntryType::Directory, mode, 0), path, &[][..]).unwrap();
        self
    }

    /// Adds a link to `target`, or something else without content.
    pub(crate) fn link(&mut self, kind: EntryType, path: &str, target: &str) -> &mut Self {
        let mut header = header(kind, 0o644, 0);
        if target.is_empty() {
            self.0.append_data(&mut header, path, &[][..]).unwrap();
        } else {
            self.0.append_link(&mut header, path, target).unwrap();
        }
        self
    }

    /// Adds an entry with names that the library would refuse to write.
    pub(crate) fn raw(&mut self, kind: EntryType, path: &str, target: &str, content: &[u8]) -> &mut Self {
        let mut header = header(kind, 0o644, content.len() as u64);
        let old = header.as_old_mut();
        old.name[..path.len()].copy_from_slice(path.as_bytes());
        old.linkname[..target.len()].copy_from_slice(target.as_bytes());
        header.set_cksum();
        self.0.append(&header, content).unwrap();
        self
    }

    /// Adds an entry that claims a length and has no content.
    pub(crate) fn claiming(&mut self, path: &str, len: u64) -> &mut Self {
        let mut header = header(EntryType::Regular, 0o644, len);
        header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
        header.set_cksum();
        self.0.get_mut().extend_from_slice(header.as_bytes());
        self
    }

    /// Adds a name of this length.
    pub(crate) fn claiming_name(&mut self, len: usize) -> &mut Self {
        let mut header = header(EntryType::GNULongName, 0, len as u64);
        header.set_cksum();
        self.0.append(&header, &*vec![b'x'; len]).unwrap();
        self
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        self.0.into_inner().unwrap()
    }
}

fn header(kind: EntryType, mode: u32, len: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(len);
    header.set_mtime(MTIME as u64);
    header.set_uid(UID.into());
    header.set_gid(GID.into());
    header
}

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Returns `bytes` as two frames with one between that is skipped, as in zstd:chunked layers.
pub(crate) fn zstd(bytes: &[u8]) -> Vec<u8> {
    let frame = |part: &[u8]| ruzstd::encoding::compress_to_vec(part, ruzstd::encoding::CompressionLevel::Fastest);
    let (first, second) = bytes.split_at(bytes.len() / 2);
    let skipped = [0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3];
    [&frame(first)[..], &skipped, &frame(second)].concat()
}

/// Returns a digest in hexadecimal.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn decompressed(layer: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    match layer.starts_with(&[0x1f, 0x8b]) {
        true => drop(std::io::copy(&mut flate2::read::GzDecoder::new(layer), &mut plain).unwrap()),
        false => plain.extend_from_slice(layer),
    }
    plain
}

pub(crate) fn config(architecture: &str, layers: &[Vec<u8>]) -> Vec<u8> {
    let diff_ids: Vec<_> = layers.iter().map(|layer| format!("sha256:{}", sha256(&decompressed(layer)))).collect();
    let config = json!({
        "architecture": architecture, "os": "linux", "rootfs": { "type": "layers", "diff_ids": diff_ids },
        "config": {
            "Env": ["A=b"], "WorkingDir": "/srv", "User": "me", "Entrypoint": ["/entry"], "Cmd": ["argument"],
            "ExposedPorts": {}, "Volumes": null,
        },
    });
    config.to_string().into_bytes()
}

pub(crate) fn this_architecture() -> &'static str {
    if cfg!(target_arch = "x86_64") { "amd64" } else { "arm64" }
}

/// Writes an OCI layout of `layers`, as `skopeo copy … oci:DIR:NAME` does.
pub(crate) fn layout(dir: &Path, layers: &[Vec<u8>], name: &str) {
    fs::create_dir_all(dir.join("blobs/sha256")).unwrap();
    let add = |bytes: &[u8], kind: &str| {
        let digest = sha256(bytes);
        fs::write(dir.join("blobs/sha256").join(&digest), bytes).unwrap();
        json!({ "mediaType": kind, "digest": format!("sha256:{digest}"), "size": bytes.len() })
    };
    let config = add(&config(this_architecture(), layers), "application/vnd.oci.image.config.v1+json");
    let layers: Vec<_> = layers.iter().map(|layer| add(layer, "application/vnd.oci.image.layer.v1.tar+gzip")).collect();
    let manifest = json!({ "schemaVersion": 2, "config": config, "layers": layers });
    let mut descriptor = add(manifest.to_string().as_bytes(), "application/vnd.oci.image.manifest.v1+json");
    descriptor["annotations"] = json!({ "org.opencontainers.image.ref.name": name });
    let index = json!({ "schemaVersion": 2, "manifests": [descriptor] });
    fs::write(dir.join("index.json"), index.to_string()).unwrap();
    fs::write(dir.join("oci-layout"), r#"{"imageLayoutVersion": "1.0.0"}"#).unwrap();
}

/// Renames the image of a layout.
pub(crate) fn add_name(dir: &Path, name: &str) {
    let mut index: Value = serde_json::from_slice(&fs::read(dir.join("index.json")).unwrap()).unwrap();
    let mut descriptor = index["manifests"][0].clone();
    descriptor["annotations"]["org.opencontainers.image.ref.name"] = json!(name);
    index["manifests"].as_array_mut().unwrap().push(descriptor);
    fs::write(dir.join("index.json"), index.to_string()).unwrap();
}

/// Returns the tar of a layout, as podman and skopeo write it for `oci-archive:`.
pub(crate) fn tar_of(dir: &Path) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    builder.append_dir_all(".", dir).unwrap();
    builder.into_inner().unwrap()
}

/// Returns what `docker save` and `podman save` write.
pub(crate) fn docker_archive(layers: &[Vec<u8>], tag: &str) -> Vec<u8> {
    docker(this_architecture(), layers, tag)
}

pub(crate) fn docker_archive_for(architecture: &str, layers: &[Vec<u8>]) -> Vec<u8> {
    docker(architecture, layers, "name:latest")
}

fn docker(architecture: &str, layers: &[Vec<u8>], tag: &str) -> Vec<u8> {
    let mut archive = Archive::new();
    let mut names = Vec::new();
    for layer in layers {
        let plain = decompressed(layer);
        let name = format!("{}.tar", sha256(&plain));
        archive.file(&name, 0o644, &plain);
        // Old clients use another name of the file.
        let linked = format!("{}/layer.tar", sha256(name.as_bytes()));
        archive.link(EntryType::Symlink, &linked, &format!("../{name}"));
        names.push(linked);
    }
    let config = config(architecture, layers);
    let name = format!("{}.json", sha256(&config));
    archive.file(&name, 0o644, &config);
    let manifest = json!([{ "Config": name, "RepoTags": [tag], "Layers": names }]);
    archive.file("manifest.json", 0o644, manifest.to_string().as_bytes());
    archive.finish()
}
