//! An image: its layers and its configuration, found by the manifests of an OCI layout or of a docker archive.

use std::{collections::HashMap, env::consts::ARCH};

use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use crate::{Config, Error, Result, blobs::Blobs, config::ImageConfig};

/// The file that makes a directory an OCI layout.
pub(crate) const LAYOUT_FILE: &str = "oci-layout";
/// The file with the manifests of an OCI layout.
pub(crate) const INDEX_FILE: &str = "index.json";
/// The file with the images of a docker archive.
pub(crate) const DOCKER_FILE: &str = "manifest.json";

/// The annotations that name an image in a layout: that of the OCI, and containerd's with the whole name.
const NAMES: [&str; 2] = ["io.containerd.image.name", "org.opencontainers.image.ref.name"];
/// An index in an index in an index.
const DEPTH_MAX: usize = 4;
/// Docker allows 127.
const LAYERS_MAX: usize = 1024;
/// Entries of all indexes of an image: many times those of the images of all architectures.
const MANIFESTS_MAX: usize = 1024;
/// Names in a message, and characters of each.
const NAMES_SHOWN: usize = 32;
const NAME_LEN_SHOWN: usize = 200;

/// An image that can be unpacked.
#[derive(Debug)]
pub(crate) struct Image {
    /// The digest of the configuration, which has those of the layers.
    pub(crate) id: String,
    pub(crate) config: Config,
    pub(crate) layers: Vec<Layer>,
}

/// A layer: a tar, perhaps compressed.
#[derive(Debug)]
pub(crate) struct Layer {
    /// Its file in the image.
    pub(crate) file: String,
    /// The digest of the decompressed tar, in hexadecimal.
    pub(crate) digest: String,
}

#[derive(Debug, Deserialize)]
struct Index {
    #[serde(default)]
    manifests: Vec<Descriptor>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor {
    digest: String,
    #[serde(default)]
    media_type: String,
    platform: Option<Platform>,
    #[serde(default)]
    annotations: Option<HashMap<String, String>>,
}

#[derive(Clone, Debug, Deserialize)]
struct Platform {
    architecture: String,
    os: String,
}

#[derive(Debug, Deserialize)]
struct Manifest {
    config: Descriptor,
    layers: Vec<Descriptor>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DockerImage {
    config: String,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

impl Image {
    /// Finds the image `name` in `blobs`, or the only one.
    pub(crate) fn find(blobs: &Blobs, name: Option<&str>) -> Result<Self> {
        match blobs.has(LAYOUT_FILE) && blobs.has(INDEX_FILE) {
            true => Self::of_layout(blobs, name),
            false => Self::of_docker(blobs, name),
        }
    }

    fn of_layout(blobs: &Blobs, name: Option<&str>) -> Result<Self> {
        let candidates = manifests(blobs, &blobs.json(INDEX_FILE)?, DEPTH_MAX, &mut { MANIFESTS_MAX })?;
        let named = |descriptor: &Descriptor| {
            let annotations = descriptor.annotations.iter().flatten();
            annotations.filter(|(key, _)| NAMES.contains(&key.as_str())).map(|(_, name)| name.clone()).collect()
        };
        let chosen = choose(candidates, named, name)?;
        let manifest: Manifest = parse(&verified(blobs, &chosen.digest)?, "a manifest of the image")?;
        let config = verified(blobs, &manifest.config.digest)?;
        let files = manifest.layers.iter().map(|layer| path(&layer.digest)).collect::<Result<Vec<_>>>()?;
        Self::new(&config, files)
    }

    fn of_docker(blobs: &Blobs, name: Option<&str>) -> Result<Self> {
        let images: Vec<DockerImage> = parse(&blobs.json(DOCKER_FILE)?, DOCKER_FILE)?;
        let chosen = choose(images, |image| image.repo_tags.clone().unwrap_or_default(), name)?;
        let config = blobs.json(&crate::blobs::plain_name(chosen.config.as_bytes()))?;
        let files = chosen.layers.iter().map(|layer| crate::blobs::plain_name(layer.as_bytes())).collect();
        Self::new(&config, files)
    }

    fn new(config: &[u8], files: Vec<String>) -> Result<Self> {
        let ImageConfig { architecture, os, config: settings, rootfs } = ImageConfig::parse(config)?;
        if os != "linux" || architecture != this_architecture() {
            return Err(Error::invalid(format!(
                "the image is for {os} on {architecture}, and this machine runs linux on {}",
                this_architecture()
            )));
        }
        if files.len() != rootfs.diff_ids.len() || files.len() > LAYERS_MAX {
            return Err(Error::invalid(format!(
                "the image has {} layers and {} digests of layers; at most {LAYERS_MAX} are read",
                files.len(),
                rootfs.diff_ids.len()
            )));
        }
        let layer = |(file, digest): (String, &String)| Ok(Layer { file, digest: hexadecimal(digest)?.to_owned() });
        let layers = files.into_iter().zip(&rootfs.diff_ids).map(layer).collect::<Result<_>>()?;
        Ok(Self { id: hex(&Sha256::digest(config)), config: settings, layers })
    }
}

/// Returns the manifests of an index, and of those in it, that are for this machine. `left` is how many entries of
/// indexes may still be read: an index can name another as often as it likes.
fn manifests(blobs: &Blobs, json: &[u8], depth: usize, left: &mut usize) -> Result<Vec<Descriptor>> {
    let index: Index = parse(json, "an index of the image")?;
    let mut found = Vec::new();
    let mut others = Vec::new();
    for descriptor in index.manifests {
        *left = left.checked_sub(1).ok_or_else(|| {
            Error::invalid(format!("the indexes of the image have more than {MANIFESTS_MAX} entries"))
        })?;
        if let Some(platform) = &descriptor.platform
            && (platform.os != "linux" || platform.architecture != this_architecture())
        {
            others.push(format!("{:?} on {:?}", platform.os, platform.architecture));
        } else if descriptor.media_type.contains("index") || descriptor.media_type.contains("manifest.list") {
            if depth == 0 {
                return Err(Error::invalid("the image has too many indexes in each other"));
            }
            let inner = manifests(blobs, &verified(blobs, &descriptor.digest)?, depth - 1, left)?;
            found.extend(inner.into_iter().map(|manifest| Descriptor {
                annotations: manifest.annotations.or_else(|| descriptor.annotations.clone()),
                ..manifest
            }));
        } else {
            found.push(descriptor);
        }
    }
    if found.is_empty() && !others.is_empty() {
        let machine = this_architecture();
        return Err(Error::invalid(format!("the image is for {}, and not for {machine}", others.join(", "))));
    }
    Ok(found)
}

/// Returns the candidate that has `name`, or the only one.
fn choose<T>(mut candidates: Vec<T>, names: impl Fn(&T) -> Vec<String>, name: Option<&str>) -> Result<T> {
    let shown = |name: String| name.chars().take(NAME_LEN_SHOWN).collect();
    let all: Vec<String> = candidates.iter().flat_map(&names).take(NAMES_SHOWN).map(shown).collect();
    let known = if all.is_empty() { "none has a name".to_owned() } else { format!("image=NAME: {}", all.join(", ")) };
    if let Some(name) = name {
        let position = candidates.iter().position(|candidate| names(candidate).iter().any(|other| other == name));
        let at = position.ok_or_else(|| Error::invalid(format!("there is no image {name:?} in it; {known}")))?;
        return Ok(candidates.swap_remove(at));
    }
    match (candidates.pop(), candidates.is_empty()) {
        (Some(only), true) => Ok(only),
        (None, _) => Err(Error::invalid("there is no image in it")),
        (Some(_), false) => Err(Error::invalid(format!("it has several images; choose one: {known}"))),
    }
}

/// Reads a blob of a layout and compares it with its digest.
fn verified(blobs: &Blobs, digest: &str) -> Result<Vec<u8>> {
    let json = blobs.json(&path(digest)?)?;
    match hex(&Sha256::digest(&json)) == hexadecimal(digest)? {
        true => Ok(json),
        false => Err(Error::invalid(format!("the image is damaged: the content of {digest} has another digest"))),
    }
}

/// Returns the file of a blob in a layout.
fn path(digest: &str) -> Result<String> {
    Ok(format!("blobs/sha256/{}", hexadecimal(digest)?))
}

/// Returns the hexadecimal digits of a digest.
fn hexadecimal(digest: &str) -> Result<&str> {
    let digits = digest.strip_prefix("sha256:").filter(|digits| digits.len() == 64);
    let is_hex = |digits: &&str| digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    digits.filter(is_hex).ok_or_else(|| Error::invalid(format!("{digest:?} of the image is not a SHA-256 digest")))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn parse<'a, T: Deserialize<'a>>(json: &'a [u8], what: &str) -> Result<T> {
    serde_json::from_slice(json).map_err(|error| Error::invalid(format!("{what}: {error}")))
}

/// Returns this machine's architecture as images call it.
pub(crate) fn this_architecture() -> &'static str {
    match ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
