//! Overlays of a share, and overlayfs of this host, which is what they are compared with.

use std::{
    fs::{self, File},
    path::Path,
    process::Command,
    sync::Arc,
};

use anyhow::Context as _;
use transom_vm::{Layer, MountedBy, Share};

/// Returns `share` under an empty layer, which is beside its directory.
pub(crate) fn of(share: Share, mounted_by: MountedBy) -> anyhow::Result<Share> {
    let path = share.host.with_extension("layers");
    for name in ["upper", "work"] {
        fs::create_dir_all(path.join(name)).with_context(|| path.display().to_string())?;
    }
    // Nobody waits for the end of the daemons.
    let held = Arc::new(File::open("/dev/null")?.into());
    // As `transom run` divides them.
    let is_of_directory =
        |word: &&std::ffi::OsString| word.to_string_lossy().starts_with("--cache=") || *word == "--killpriv-v2";
    let daemon_args = share.daemon_args.iter().filter(|word| !is_of_directory(word)).cloned().collect();
    Ok(Share { layer: Some(Layer { path, held, mounted_by, daemon_args }), ..share })
}

/// Returns a command that runs `program` with `words` and the path of an overlay of an empty directory, which this
/// host's kernel mounts in `dir`.
pub(crate) fn on_host(dir: &Path, program: &Path, words: &[&str]) -> anyhow::Result<Command> {
    for name in ["lower", "upper", "work", "merged"] {
        fs::create_dir(dir.join(name)).with_context(|| dir.display().to_string())?;
    }
    let script = "cd \"$0\" && mount -t overlay o -o \
                  userxattr,xino=on,lowerdir=lower,upperdir=upper,workdir=work merged && exec \"$@\" --dir merged";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script]).arg(dir).arg(program).args(words);
    Ok(command)
}
