//! What an image says about the programs in it.

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// The variables, directory, user and command that an image's programs get unless somebody says otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct Config {
    /// Variables as `NAME=VALUE`.
    #[serde(deserialize_with = "or_default")]
    pub env: Vec<String>,
    /// The working directory; empty for `/`.
    #[serde(deserialize_with = "or_default")]
    pub working_dir: String,
    /// `USER[:GROUP]`, as names or numbers; empty for root.
    #[serde(deserialize_with = "or_default")]
    pub user: String,
    /// The beginning of the command.
    #[serde(deserialize_with = "or_default")]
    pub entrypoint: Vec<String>,
    /// The command, or its arguments if there is an entry point.
    #[serde(deserialize_with = "or_default")]
    pub cmd: Vec<String>,
}

impl Config {
    /// Returns the command that the image runs by itself, which is empty if it names none.
    pub fn command(&self) -> Vec<String> {
        self.entrypoint.iter().chain(&self.cmd).cloned().collect()
    }
}

/// The configuration blob of an image: `application/vnd.oci.image.config.v1+json` or docker's.
#[derive(Debug, Deserialize)]
pub(crate) struct ImageConfig {
    pub(crate) architecture: String,
    pub(crate) os: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) config: Config,
    pub(crate) rootfs: Layers,
}

/// The digests of the layers, decompressed.
#[derive(Debug, Deserialize)]
pub(crate) struct Layers {
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) diff_ids: Vec<String>,
}

impl ImageConfig {
    pub(crate) fn parse(json: &[u8]) -> Result<Self> {
        serde_json::from_slice(json).map_err(|error| Error::invalid(format!("the image's configuration: {error}")))
    }
}

/// Some programs write `null` for what is empty.
fn or_default<'de, D: serde::Deserializer<'de>, T: Default + Deserialize<'de>>(
    from: D,
) -> std::result::Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}
