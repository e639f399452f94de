//! Whether a run can start from a snapshot, and from which.

use std::{env, ffi::OsString, io, path::Path};

use super::{
    Key, SHARES_MAX, Store,
    key::{identity, of_boot},
};
use crate::{GuestSpec, Qemu, Root, Vmm, layers};

/// A run whose machine can be resumed.
#[derive(Debug)]
pub(crate) struct Plan<'a> {
    pub(crate) qemu: &'a Qemu,
    pub(crate) store: Store,
    pub(crate) key: Key,
}

impl<'a> Plan<'a> {
    /// Returns the plan of a run whose kernel gets `modules` and `kernel_args`.
    ///
    /// # Errors
    ///
    /// Returns an error if the machine has to boot, with the reason.
    pub(crate) fn of(
        spec: &GuestSpec,
        vmm: &'a dyn Vmm,
        modules: &[&str],
        kernel_args: &[OsString],
    ) -> Result<Self, String> {
        let dir = spec.snapshots.as_deref().ok_or("snapshots are switched off")?;
        let qemu = vmm.resumable().ok_or_else(|| format!("{} cannot resume a machine", vmm.name()))?;
        if spec.console.is_some() {
            return Err("the console of the whole start is wanted".into());
        }
        if spec.shares.iter().any(|share| share.dax.is_some()) {
            return Err("a share with a DAX window cannot be plugged into a running machine".into());
        }
        if spec.shares.iter().any(|share| share.version_table.is_some()) {
            return Err("a share with a version table cannot be plugged into a running machine".into());
        }
        if env::temp_dir().to_str().is_none() {
            return Err("QEMU takes commands in UTF-8, and the directory of the run is not".into());
        }
        let shares = spec.shares.iter().map(layers::devices).sum::<usize>();
        if shares + usize::from(matches!(spec.root, Root::Host(_))) > SHARES_MAX {
            return Err(format!("a machine that is resumed has room for {SHARES_MAX} shares"));
        }
        let key = key(spec, qemu, modules, kernel_args)?;
        let store = Store::at(dir).map_err(|error| unusable(&dir.to_string_lossy(), &error))?;
        match store.refusal(&key) {
            Some(why) => Err(why),
            None => Ok(Self { qemu, store, key }),
        }
    }
}

/// Hashes what the guest's memory and QEMU's state depend on. The agent is this program, and stands for all that it
/// says to QEMU and to the kernel.
fn key(spec: &GuestSpec, qemu: &Qemu, modules: &[&str], kernel_args: &[OsString]) -> Result<Key, String> {
    let mut parts: Vec<Vec<u8>> = Vec::new();
    let mut add = |part: &[u8]| parts.push(part.to_vec());
    for word in qemu.snapshot_parts()? {
        add(word.as_encoded_bytes());
        let path = Path::new(&word);
        if path.is_absolute() && path.is_file() {
            add(described(path)?.as_bytes());
        }
    }
    add(described(&spec.kernel.image)?.as_bytes());
    if let Some(folder) = &spec.kernel.modules {
        add(described(folder)?.as_bytes());
    }
    let programs = [Some(&spec.agent), spec.events.as_ref().map(|events| &events.program), spec.busybox.as_ref()];
    for program in programs {
        add(program.map(|program| described(program)).transpose()?.unwrap_or_default().as_bytes());
    }
    modules.iter().for_each(|module| add(module.as_bytes()));
    add(b"");
    kernel_args.iter().for_each(|word| add(word.as_encoded_bytes()));
    add(format!("{} CPUs, {} MiB", spec.cpus, spec.memory_mib).as_bytes());
    let boot = of_boot().map_err(|error| unusable("the id of the host's boot", &error))?;
    Ok(Key::of(&boot, parts.iter().map(Vec::as_slice)))
}

fn described(path: &Path) -> Result<String, String> {
    identity(path).map_err(|error| unusable(&path.to_string_lossy(), &error))
}

fn unusable(what: &str, error: &io::Error) -> String {
    format!("cannot use {what}: {error}")
}
